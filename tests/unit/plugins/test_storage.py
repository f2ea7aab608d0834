"""storage/safetensors: what a hostile file may say, and what the plan must find."""

import hashlib
import json
import struct

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from pih_storage_safetensors import start
from pih_storage_safetensors.header import parse

from pih_runtime.contracts import Context
from pih_runtime.errors import SealError, WorkerError
from pih_runtime.plan import Weight, to_json
from tests.integration.worker.toy_bundle import plan, weights_file


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), start=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def test_tensors_are_found_where_the_header_says():
    text = file_of({"__metadata__": {"k": "v"}, "b": entry(start=8, end=16), "a": entry(start=0, end=8)}, bytes(16))
    found = parse(memoryview(text))
    base = len(text) - 16
    assert {name: (tensor.start - base, tensor.end - base) for name, tensor in found.items()} == {
        "a": (0, 8),
        "b": (8, 16),
    }


HOSTILE = {
    "cannot hold a header": b"123",
    "header of 18446744073709551615 bytes": b"\xff" * 8 + bytes(32),
    "header of 99 bytes": struct.pack("<Q", 99) + b"{}",
    "not JSON": file_of(b"{nope}"),
    "not a JSON object": file_of([1]),
    "twice": file_of(b'{"a": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}, "a": 1}'),
    "is not dtype, shape and data_offsets": file_of({"a": {"dtype": "F32"}}),
    "unknown dtype": file_of({"a": entry("F33")}, bytes(8)),
    "unknown dtype 'F4'": file_of({"a": entry("F4")}, bytes(8)),
    "has shape": file_of({"a": entry(shape=(-2,))}, bytes(8)),
    "has shape 7": file_of({"a": {**entry(), "shape": 7}}, bytes(8)),
    "offsets": file_of({"a": entry(start=8, end=0)}, bytes(8)),
    "offsets .18446744073709551616": file_of({"a": entry(start=1 << 64, end=(1 << 64) + 8)}, bytes(8)),
    "does not fill": file_of({"a": entry(shape=(3,))}, bytes(8)),
    "does not fill offsets": file_of({"a": entry(shape=(1 << 62, 1 << 62))}, bytes(8)),
    "tensors end at byte": file_of({"a": entry()}, bytes(9)),
    "the one before ends": file_of({"a": entry(), "b": entry(start=4, end=12)}, bytes(12)),
    "starts at byte": file_of({"a": entry(), "b": entry(start=12, end=20)}, bytes(20)),
    "of a file of": file_of({"a": entry()}, bytes(4)),
    "deep": file_of(b"[" * 100_000),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_a_hostile_header_is_refused(words):
    with pytest.raises(ValueError, match=words if words != "deep" else "not JSON"):
        parse(memoryview(HOSTILE[words]))


@given(st.data())
def test_nothing_is_accepted_that_the_reference_refuses(data):
    """Damage a valid file anywhere in its header; what still parses lies within the file, as the reference has it."""
    text = bytearray(
        file_of({"a": entry(), "b": entry(start=8, end=16), "c": entry("BF16", (2, 2), 16, 24)}, bytes(24))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 25))] = data.draw(st.sampled_from(b'0123456789[]{}",: U8FIB\xff'))
    try:
        found = parse(memoryview(bytes(text)))
    except ValueError:
        return
    assert sum(tensor.end - tensor.start for tensor in found.values()) == 24
    reference = dict(safetensors.deserialize(bytes(text)))
    assert {name: (list(t.shape), t.end - t.start) for name, t in found.items()} == {
        name: (item["shape"], len(item["data"])) for name, item in reference.items()
    }


@pytest.fixture
def root(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "plan.json").write_text(to_json(plan(400)))
    return tmp_path


def started(root, data, digest=None):
    path = root / "weights/weights.safetensors"
    if data is not None:
        path.write_bytes(data)
    files = [{"path": "/pih/weights/weights.safetensors", "digest": digest}] if digest else []
    (root / "bundle.json").write_text(json.dumps({"schema": 1, "name": "t", "lock": "", "files": files}))
    return start(Context(root, {}, {}, "", None, lambda _: None, lambda: False, print))


def sha(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_a_tensor_is_a_view_of_the_map_writable_in_private(root):
    data = weights_file(data=bytes(range(256)))
    weights = started(root, data, sha(data))
    view = weights.tensor("toy")
    assert bytes(view) == bytes(range(256))
    view[0] = 9  # a backend takes its address from a writable buffer; the file stays as it is
    assert (root / "weights/weights.safetensors").read_bytes() == data
    with pytest.raises(WorkerError, match="no tensor 'other'"):
        weights.tensor("other")
    weights.stop()


def test_other_bytes_than_sealed_are_refused(root):
    data = weights_file()
    with pytest.raises(SealError, match=r"bundle\.json says") as caught:
        started(root, data, sha(data + b"x"))
    assert caught.value.exit_code == 8


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (weights_file("other"), "the plan needs tensor 'toy'"),
        (weights_file(data=bytes(128)), "128 bytes, the plan says 256"),
        (file_of({"toy": entry(shape=(64,), end=256), "more": entry(start=256, end=264)}, bytes(264)), "does not use"),
        (b"", "cannot map"),
        (None, "cannot map"),
        (b"12345678", "not a safetensors file"),
    ],
)
def test_weights_delivered_apart_must_be_those_of_the_plan(root, data, words):
    with pytest.raises((SealError, WorkerError), match=words):
        started(root, data)


def test_missing_weights_delivered_apart_name_the_mount(root):
    with pytest.raises(WorkerError) as caught:
        started(root, None)
    assert "mount the weights at /pih/weights" in str(caught.value)


def test_filler_between_tensors_is_allowed(root):
    data = file_of({"toy": entry(shape=(64,), end=256), "_pad.0": entry(start=256, end=264)}, bytes(264))
    assert started(root, data).tensor("toy").nbytes == 256
    assert Weight("toy", (64,), "f32", "rows", 256) in plan(400).weights
