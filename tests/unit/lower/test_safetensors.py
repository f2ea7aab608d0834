"""safetensors: reads what the library writes, writes what the library reads, refuses what does not hold together."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps.lower.safetensors import Entry, checkpoint_of, read_header, write


def file(table, data=b""):
    head = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(head)) + head + data


def header(data):
    return read_header(io.BytesIO(data), len(data), "model.safetensors")


def entry(begin, end, shape=(2, 4), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_reads_what_the_library_writes(tmp_path):
    tensors = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.arange(6, dtype=np.float16).reshape(2, 3)}
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, {"made": "by them"})
    checkpoint = checkpoint_of({"m": (path, header(path.read_bytes()))}, {})
    assert {name: (t.format, t.shape) for name, t in checkpoint.tensors.items()} == {
        "a": ("f32", (3, 4)),
        "b": ("f16", (2, 3)),
    }
    assert checkpoint.read("a", 1, 3) == tensors["a"][1:].tobytes()
    assert checkpoint.read("b", 0, 2) == tensors["b"].tobytes()


def test_the_library_reads_what_is_written(tmp_path):
    values = {
        "b": np.arange(8, dtype=np.float32),
        "a": np.arange(64, dtype=np.uint8),
        "c": np.arange(16, dtype=np.float32),
    }
    entries = [
        Entry(
            name,
            "U8" if v.dtype == np.uint8 else "F32",
            v.shape,
            v.nbytes,
            lambda v=v: [v.tobytes()[:5], v.tobytes()[5:]],
        )
        for name, v in values.items()
    ]
    path = tmp_path / "out.safetensors"
    write(path, entries, {"b": "f32 rows"})
    with safetensors.safe_open(path, "np") as found:
        assert found.metadata() == {"b": "f32 rows"}
        for name, v in values.items():
            assert (found.get_tensor(name) == v).all()
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    table = json.loads(path.read_bytes()[8 : 8 + length])
    starts = {name: 8 + length + table[name]["data_offsets"][0] for name in values}
    assert all(start % 64 == 0 for start in starts.values())
    assert list(starts) == sorted(starts, key=starts.get)


def test_a_tensor_of_another_length_than_planned_is_an_error(tmp_path):
    with pytest.raises(BuildError, match="tensor a has 3 bytes, planned were 4"):
        write(tmp_path / "x", [Entry("a", "U8", (4,), 4, lambda: [b"abc"])], {})


HOSTILE = {
    "its length 0 does not fit a file of 0 bytes": b"",
    "its length 9223372036854775808 does not fit": struct.pack("<Q", 1 << 63) + b"{}",
    "Expecting property name": file(b"{]"),
    "header: a number of 5000 digits is too long": file(b'{"a": ' + b"1" * 5000 + b"}"),
    "it is no JSON object": file(b"[]"),
    "'utf-8' codec": file(json.dumps({"a": entry(0, 32)}).encode("utf-16"), bytes(32)),
    "'a' appears twice": file(b'{"a": 1, "a": 2}'),
    "tensor a has dtype 'I64'": file({"a": entry(0, 32, dtype="I64")}, bytes(32)),
    "tensor a has dtype None": file({"a": 3}),
    r"tensor a has dtype \['F32'\]": file({"a": entry(0, 32, dtype=["F32"])}, bytes(32)),
    "tensor a has dtype {}": file({"a": entry(0, 32, dtype={})}, bytes(32)),
    r"tensor a has the shape \[2, -4\]": file({"a": entry(0, 32, (2, -4))}, bytes(32)),
    r"tensor a has the shape \[\]": file({"a": entry(0, 4, ())}, bytes(4)),
    "has the impossible shape": file({"a": entry(0, 32, (1 << 30, 1 << 30))}, bytes(32)),
    r"impossible shape \[1000000": file({"a": entry(0, 32, (10**4000,) * 4000)}, bytes(32)),
    r"impossible shape \[1, 1, 1": file({"a": entry(0, 32, (1,) * 1_000_000)}, bytes(32)),
    r"tensor a has data_offsets \[0\]": file({"a": {**entry(0, 32), "data_offsets": [0]}}, bytes(32)),
    "32 bytes, not 16 at 0": file({"a": entry(0, 16)}, bytes(16)),
    r"32 bytes, not 0 at 32": file({"a": entry(32, 32)}, bytes(32)),
    "tensor a would end at byte": file({"a": entry(1 << 40, (1 << 40) + 32)}, bytes(32)),
    "tensor b begins at 16, where the one before ends is 32": file({"a": entry(0, 32), "b": entry(16, 48)}, bytes(48)),
    "tensor a begins at 8, where the one before ends is 0": file({"a": entry(8, 40)}, bytes(40)),
    "8 bytes belong to no tensor": file({"a": entry(0, 32)}, bytes(40)),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_hostile_header_is_refused(message):
    with pytest.raises(BuildError, match=message) as caught:
        header(HOSTILE[message])
    assert "model.safetensors" in str(caught.value)


def test_nesting_without_end_is_refused():
    with pytest.raises(BuildError, match="bad safetensors header"):
        header(file(b'{"a":' * 200_000))


def test_a_tensor_in_two_shards_is_refused():
    shard = header(file({"a": entry(0, 32)}, bytes(32)))
    with pytest.raises(BuildError, match=r"two: tensor a is in one too"):
        checkpoint_of({"one": (None, shard), "two": (None, shard)}, {})


def test_a_file_that_shrank_since_is_an_error(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(file({"a": entry(0, 32)}, bytes(32)))
    checkpoint = checkpoint_of({"m": (path, header(path.read_bytes()))}, {})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BuildError, match="m: the file ends inside tensor a"):
        checkpoint.read("a", 0, 2)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_makes_anything_but_a_clear_error(data):
    whole = bytearray(file({"a": entry(0, 32), "b": entry(32, 48, (4, 2), "BF16")}, bytes(48)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        header(cut)
    except BuildError as problem:
        assert "model.safetensors" in str(problem)  # noqa: PT017 - either outcome is right
