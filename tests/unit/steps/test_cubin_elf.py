"""Cubins are read, and files that lie about themselves are refused, whatever they say."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps import cubin_elf
from pih_steps.cubin_elf import Entry
from tests.unit.steps.cubin_file import cubin

LAUNCH = (8, 256, 8, 0, 64, 1, 0)
WHOLE = cubin(("b_n1", 40, 4096, 0, LAUNCH), ("a_n2", 255, 0, 16, None), sm=90)


def test_what_each_entry_costs_and_how_it_is_launched():
    found = cubin_elf.read(WHOLE, "x")
    assert found.sm == "sm_90"
    assert found.entries == (Entry("a_n2", 32, 255, 0, 16, ()), Entry("b_n1", 16, 40, 4096, 0, LAUNCH))


def test_an_entry_that_does_not_say_whether_it_spills():
    with pytest.raises(BuildError, match="not a cubin"):
        cubin_elf.read(cubin(("b_n1", 40, 0, 0, LAUNCH), ("a_n2", 40, 0, None, LAUNCH)), "x")


def test_a_cubin_without_entries():
    assert cubin_elf.read(cubin(), "x").entries == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF", bytes(200), WHOLE[:64], WHOLE[:-1], cubin(machine=62), b"\x7fELF\x01" + WHOLE[5:]],
    ids=["empty", "magic", "zeros", "header", "short", "another machine", "32 bits"],
)
def test_what_is_no_cubin_is_a_build_error(data):
    with pytest.raises(BuildError, match=r"pack\.cubin: not a cubin"):
        cubin_elf.read(data, "pack.cubin")


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_cubin_or_a_build_error(changes):
    data = bytearray(WHOLE)
    for at, value in changes:
        data[at] = value
    read_or_refused(bytes(data))


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_cut_short_gives_a_cubin_or_a_build_error(size):
    read_or_refused(WHOLE[:size])


FIELDS = [(16, "H"), (18, "H"), (40, "Q"), (48, "I"), (60, "H"), (62, "H")]  # of the header
TABLE = struct.unpack_from("<Q", WHOLE, 40)[0]
FIELDS += [
    (TABLE + 64 * index + at, form) for index in range(8) for at, form in ((0, "I"), (4, "I"), (24, "Q"), (32, "Q"))
]


@given(st.lists(st.tuples(st.sampled_from(FIELDS), st.integers(0, 2**64 - 1)), min_size=1, max_size=3))
def test_any_number_in_any_field_gives_a_cubin_or_a_build_error(changes):
    data = bytearray(WHOLE)
    for (at, form), value in changes:
        struct.pack_into(f"<{form}", data, at, value % 2 ** (8 * struct.calcsize(form)))
    read_or_refused(bytes(data))


def test_many_sections_of_one_long_name_are_read_in_no_time():
    """A name's length is bounded: 60,000 names in one place would else be gigabytes."""
    count, name = 60_000, b".text." + b"a" * (1 << 20) + b"\0"
    section = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, len(name), 0, 0, 1, 0)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, 64 + len(name), 89 << 8, 64, 0, 0, 64, count, 0
    )
    with pytest.raises(BuildError):
        cubin_elf.read(header + name + section * count, "x")


def read_or_refused(data):
    try:
        found = cubin_elf.read(data, "x")
    except BuildError:
        return
    assert all(len(entry.launch) in (0, 7) for entry in found.entries)
