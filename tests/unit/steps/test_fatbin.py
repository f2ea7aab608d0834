"""Fat binaries: what is in them, what a processor loads of them, and bytes that only look like one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih_steps import fatbin
from pih_steps.fatbin import Container, Entry

KINDS = {"ptx": 1, "cubin": 2, "": 64}


def entry(kind, sm, size, header=64):
    fields = struct.pack("<HHIQIIHHI", KINDS[kind], 0x101, header, size, size, 0, 8, 1, sm)
    return fields.ljust(header, b"\0") + b"\xaa" * size


def container(*entries, version=1, header=16, more=0):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, version, header, len(body) + more) + body


TWO = container(entry("cubin", 80, 40), entry("ptx", 90, 24, header=96)) + b"\0" * 24 + container(entry("cubin", 75, 8))


def test_containers_are_found_where_they_begin():
    found = tuple(fatbin.containers(b"\x7fELF1234" + TWO + b"tail"))
    assert found == (
        Container((Entry("cubin", 80, 40), Entry("ptx", 90, 24))),
        Container((Entry("cubin", 75, 8),)),
    )
    assert fatbin.by_processor(found) == {"sm_75": 8, "sm_80": 40, "PTX 90": 24}


@pytest.mark.parametrize(
    ("entries", "sm", "loaded"),
    [
        ([("cubin", 80), ("cubin", 86), ("cubin", 90)], 89, ("cubin", 86)),
        ([("cubin", 75), ("cubin", 90)], 89, None),
        ([("cubin", 75), ("ptx", 80), ("ptx", 75)], 89, ("ptx", 80)),
        ([("cubin", 80), ("ptx", 89)], 89, ("cubin", 80)),
        ([("cubin", 90), ("ptx", 120)], 90, ("cubin", 90)),
        ([("cubin", 100)], 103, None),  # may be for sm_100 alone: its flags are not published
        ([("ptx", 120)], 89, None),
        ([("", 89)], 89, None),
    ],
)
def test_a_device_loads_its_best_cubin_else_text_to_compile(entries, sm, loaded):
    (found,) = fatbin.containers(container(*(entry(kind, made_for, 8) for kind, made_for in entries)))
    chosen = fatbin.usable(found, sm)
    assert (chosen and (chosen.kind, chosen.sm)) == loaded


@pytest.mark.parametrize(
    "data",
    [
        container(entry("cubin", 80, 8), version=2),
        container(entry("cubin", 80, 8), header=24),
        container(entry("cubin", 80, 8), more=1),
        b"1234" + container(entry("cubin", 80, 8)),
        fatbin.MAGIC,
    ],
)
def test_bytes_that_only_look_like_one_are_none(data):
    assert list(fatbin.containers(data)) == []


@pytest.mark.parametrize("body", [entry("cubin", 80, 8)[:40], entry("cubin", 80, 8, header=64)[:70], b"\0" * 64])
def test_what_is_not_understood_is_counted_as_unknown(body):
    (found,) = fatbin.containers(container(entry("cubin", 80, 16), body))
    assert found == Container((Entry("cubin", 80, 16),), len(body))
    assert fatbin.by_processor([found]) == {"sm_80": 16, "unknown": len(body)}


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_left(data):
    for found in fatbin.containers(fatbin.MAGIC + b"\1\0\x10\0" + data):
        assert sum(one.size for one in found.entries) + found.unread <= len(data)
