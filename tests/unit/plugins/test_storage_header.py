"""storage/safetensors: what a file's header may say, a hostile one's too."""

import struct

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from pih_storage_safetensors.header import parse

from tests.unit.plugins.safetensors_file import entry, file_of


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
    "a number of 5000 digits is too long": file_of(b'{"a": ' + b"1" * 5000 + b"}"),
    "deep": file_of(b"[" * 100_000),
    "not JSON: 'utf-8' codec": file_of('{"a": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'.encode("utf-16")),
    "not JSON: Expecting value": file_of(bytes(4096)),
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
