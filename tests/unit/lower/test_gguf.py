"""GGUF headers: what the `gguf` library writes is read as it reads it; hostile ones are refused, by name."""

from __future__ import annotations

import io
import struct

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps.lower.gguf import checkpoint_of, read_header

CONFIG = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 128,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": ["a", "b", "ab"],
}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def value(item):
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item, list):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    return struct.pack("<II", 4, item) if isinstance(item, int) else struct.pack("<If", 6, item)


def tensor(name, shape, kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)


def file(tensors=(), metadata=CONFIG, data=b"", *, magic=b"GGUF", version=3, count=None):
    keys = b"".join(text(key) + value(item) for key, item in metadata.items())
    head = magic + struct.pack("<IQQ", version, len(tensors) if count is None else count, len(metadata))
    head += keys + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def header(data):
    return read_header(io.BytesIO(data), len(data), "model.gguf")


def written(path):
    """A file by the gguf library: each format that it can store for us."""
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a", "b", "ab"])
    writer.add_add_bos_token(True)
    kinds = gguf.GGMLQuantizationType
    for name, kind in (
        ("token_embd", kinds.Q8_0),
        ("output", kinds.F16),
        ("blk.0.attn_q", kinds.Q4_1),
        ("blk.0.ffn_up", kinds.BF16),
    ):
        values = rng.standard_normal((32, 64)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", rng.standard_normal(64).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_reads_what_the_gguf_library_writes(tmp_path):
    path = written(tmp_path / "model.gguf")
    found = read_header(io.BytesIO(path.read_bytes()), path.stat().st_size, "model.gguf")
    theirs = gguf.GGUFReader(path)
    own_fields = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert found.metadata == own_fields
    assert found.offsets == {tensor.name: tensor.data_offset for tensor in theirs.tensors}
    checkpoint = checkpoint_of(found, path, "model.gguf")
    bytes_by_name = {
        name: checkpoint.read(name, 0, np.prod(t.shape[:-1], dtype=int)) for name, t in checkpoint.tensors.items()
    }
    assert sorted(bytes_by_name.values()) == sorted(tensor.data.tobytes() for tensor in theirs.tensors)
    assert checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"].format == "q4_1"
    assert checkpoint.tensors["model.embed_tokens.weight"].shape == (32, 64)


def test_rows_are_read_alone(tmp_path):
    path = written(tmp_path / "model.gguf")
    checkpoint = checkpoint_of(header(path.read_bytes()), path, "model.gguf")
    whole = checkpoint.read("lm_head.weight", 0, 32)
    assert checkpoint.read("lm_head.weight", 3, 5) == whole[3 * 128 : 5 * 128]


def test_a_file_that_shrank_since_is_an_error(tmp_path):
    path = written(tmp_path / "model.gguf")
    checkpoint = checkpoint_of(header(path.read_bytes()), path, "model.gguf")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(BuildError, match=r"model.gguf: the file ends inside tensor model.norm.weight"):
        checkpoint.read("model.norm.weight", 0, 1)


def test_the_config_is_hugging_faces():
    config = checkpoint_of(header(file()), None, "model.gguf").config
    assert config["hidden_size"] == 32
    assert config["head_dim"] == 16
    assert config["num_key_value_heads"] == 2
    assert config["rope_theta"] == 10000.0
    assert config["rope_pairs"] == "adjacent"
    assert config["vocab_size"] == 3
    assert config["tie_word_embeddings"] is True


GOOD = tensor("output_norm.weight", (32,))
HOSTILE = {
    "the file does not begin with GGUF": file(magic=b"GGML"),
    "version 9 is not 2 or 3": file(version=9),
    "18446744073709551615 tensors, more than": file(count=2**64 - 1),
    "the file ends at": file()[:40],
    "appears twice": file([GOOD, GOOD], data=bytes(128)),
    r"tensor output_norm.weight would end at byte .*, the file has": file(
        [tensor("output_norm.weight", (32,), 0, 2**60)]
    ),
    "is not aligned to 32": file([tensor("output_norm.weight", (32,), 0, 4)], data=bytes(256)),
    r"tensors output_norm.weight and output.weight overlap": file(
        [GOOD, tensor("output.weight", (1, 32), 0, 96)], data=bytes(512)
    ),
    "is stored as GGML type 7": file([tensor("output_norm.weight", (32,), 7)], data=bytes(128)),
    "rows of 33 values are no whole number of q8_0 blocks": file(
        [tensor("output_norm.weight", (33,), 8)], data=bytes(128)
    ),
    r"impossible shape \[4294967296, 4294967296\]": file([tensor("output.weight", (2**32, 2**32))]),
    r"impossible shape \[0\]": file([tensor("output.weight", (0,))]),
    "has 9 dimensions": file([text("output.weight") + struct.pack("<I", 9)]),
    "is not a power of two": file(metadata={**CONFIG, "general.alignment": 3}),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_hostile_header_is_refused(message):
    with pytest.raises(BuildError, match=message) as caught:
        header(HOSTILE[message])
    assert "model.gguf" in str(caught.value)
    assert caught.value.exit_code == 7
    assert caught.value.fix


def test_a_huge_array_is_refused_at_once():
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 0, 2**40)
    with pytest.raises(BuildError, match="1099511627776 array items"):
        header(data)


def test_bytes_that_are_not_utf8_are_refused():
    data = file().replace(b"general.architecture", b"general.\xff\xferchitecture"[:20])
    with pytest.raises(BuildError, match="is not UTF-8"):
        header(data)


def test_a_key_twice_is_refused():
    keys = text("a") + value(1)
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + keys + keys
    with pytest.raises(BuildError, match="'a' appears twice"):
        header(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "mamba"}, "'mamba' is not known here"),
        ({"general.architecture": ["llama"]}, "is not known here"),
        ({"llama.block_count": "one"}, "llama.block_count is 'one', not int"),
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type is 'yarn'"),
        ({"llama.rope.dimension_count": 8}, "only rotation of whole heads"),
        ({"llama.attention.value_length": 8}, "keys and values of other lengths"),
        ({"llama.attention.sliding_window": 4096}, "llama.attention.sliding_window is 4096, of which nothing is known"),
        ({"llama.expert_count": 8}, "llama.expert_count is 8, of which nothing is known"),
        ({"llama.logit_scale": 0.5}, "llama.logit_scale is 0.5"),
        ({"tokenizer.ggml.tokens": 3}, "llama.vocab_size is None"),
    ],
)
def test_a_config_that_cannot_be_honoured_is_refused(changes, message):
    with pytest.raises(BuildError, match=message):
        checkpoint_of(header(file(metadata={**CONFIG, **changes})), None, "model.gguf")


def test_an_unknown_tensor_is_refused():
    data = file([tensor("blk.0.ssm_a.weight", (32,))], data=bytes(128))
    with pytest.raises(BuildError, match=r"tensor blk.0.ssm_a.weight is not part"):
        checkpoint_of(header(data), None, "model.gguf")


def test_a_header_alone_has_no_bytes():
    checkpoint = checkpoint_of(header(file([GOOD], data=bytes(128))), None, "model.gguf")
    with pytest.raises(BuildError, match=r"model.norm.weight are not at hand"):
        checkpoint.read("model.norm.weight", 0, 1)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_makes_anything_but_a_clear_error(data):
    """Bytes changed or cut anywhere: a header that still holds together, or a BuildError."""
    whole = bytearray(file([GOOD, tensor("output.weight", (3, 32), 0, 128)], data=bytes(512)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        checkpoint_of(header(cut), None, "model.gguf")
    except BuildError as problem:
        assert "model.gguf" in str(problem)  # noqa: PT017 - either outcome is right
