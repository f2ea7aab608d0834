"""Cubins, read in pure Python: which processor they are for, their kernel entries, and what each costs it.

A cubin is a 64-bit little-endian ELF file. Not published by its maker and read here as `cuobjdump` and `readelf` show
it: bits 8 to 15 of e_flags are the compute capability; `.text.NAME` is the code of entry NAME, `.nv.shared.NAME` its
static shared memory; `.nv.info` is a list of (form, attribute, size, payload), of which 0x2f counts an entry's
registers and 0x11 its frame in local memory, where spills go, each by the entry's index in the symbol table. A cubin
that lacks either of an entry is refused: nobody could tell whether it spills.
Contents are untrusted: each offset is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pih_runtime.errors import BuildError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PAIR = struct.Struct("<II")
_CUDA = 190  # e_machine
_NOBITS = 8
_FRAME, _REGISTERS = 0x11, 0x2F
_SIZED = 4  # the form of an attribute whose payload follows it
_LAUNCH, _LAUNCH_WORDS = "pih_launch_", 7
_LONGEST_NAME = 4096  # many names may share one place


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel entry. code, shared, frame: bytes; launch: the seven numbers of its `pih_launch`, empty without one."""

    name: str
    code: int
    registers: int
    shared: int
    frame: int
    launch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cubin:
    """sm: as 'sm_89'. entries: by name, sorted."""

    sm: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int


def read(data: bytes, where: str) -> Cubin:
    """Parse a cubin; raises BuildError where it is none, or does not hold together."""
    try:
        fields = _HEADER.unpack_from(data)
        if fields[0][:6] != b"\x7fELF\x02\x01" or fields[2] != _CUDA:
            raise ValueError("it is no ELF file for a GPU")
        sections = _sections(data, fields[6], fields[12], fields[13])
        named = {section.name: section for section in sections}
        symbols = list(_symbols(data, named))
        attributes = dict(_attributes(data, named.get(".nv.info")))
        launches = dict(_launches(data, sections, symbols))
        indices = {symbol[0]: index for index, symbol in enumerate(symbols)}
        entries = []
        for section in sections:
            if section.name.startswith(".text."):
                name = section.name.removeprefix(".text.")
                index = indices[name]
                shared = named.get(f".nv.shared.{name}")
                entries.append(
                    Entry(
                        name,
                        section.size,
                        attributes[_REGISTERS, index],
                        shared.size if shared else 0,
                        attributes[_FRAME, index],
                        launches.get(name, ()),
                    )
                )
    except (ValueError, LookupError, OverflowError, struct.error) as problem:
        raise BuildError(f"not a cubin: {problem!r}", where=where, fix="build the kernels again") from problem
    return Cubin(f"sm_{fields[7] >> 8 & 255}", tuple(sorted(entries, key=lambda entry: entry.name)))


def _sections(data: bytes, offset: int, count: int, names_at: int) -> list[_Section]:
    raw = [_SECTION.unpack_from(data, offset + index * _SECTION.size) for index in range(count)]
    names = raw[names_at]
    found = []
    for name, kind, _, _, start, size, *_ in raw:
        if kind != _NOBITS and start + size > len(data):
            raise ValueError("a section ends past the file")
        found.append(_Section(_text(data, names[4] + name, names[4] + names[5]), kind, start, size))
    return found


def _symbols(data: bytes, named: dict[str, _Section]) -> Iterator[tuple[str, int, int, int]]:
    """(name, section, value, size) of each symbol, in the table's order."""
    table, names = named[".symtab"], named[".strtab"]
    for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
        name, _, _, section, value, size = _SYMBOL.unpack_from(data, at)
        yield _text(data, names.offset + name, names.offset + names.size), section, value, size


def _attributes(data: bytes, section: _Section | None) -> Iterator[tuple[tuple[int, int], int]]:
    """((attribute, symbol), value) of those whose payload is such a pair."""
    at, end = (section.offset, section.offset + section.size) if section else (0, 0)
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _SIZED:
            continue  # its value lay where a size would
        if at + size > end:
            raise ValueError("an attribute ends past its section")
        if size == _PAIR.size:
            symbol, value = _PAIR.unpack_from(data, at)
            yield (attribute, symbol), value
        at += size


def _launches(
    data: bytes, sections: list[_Section], symbols: list[tuple[str, int, int, int]]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, index, value, size in symbols:
        if name.startswith(_LAUNCH):
            section = sections[index]
            if size != 4 * _LAUNCH_WORDS or value + size > section.size:
                raise ValueError(f"{name} is not {_LAUNCH_WORDS} numbers")
            words = struct.unpack_from(f"<{_LAUNCH_WORDS}i", data, section.offset + value)
            yield name.removeprefix(_LAUNCH), words


def _text(data: bytes, start: int, end: int) -> str:
    return data[start : data.index(b"\0", start, min(end, start + _LONGEST_NAME))].decode("ascii")
