"""ELF files, read and stripped in pure Python: what a library needs, and only what is loaded of it.

64-bit little-endian files, as every target of PIH has. Contents are untrusted: each
offset is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pih_runtime.errors import BuildError

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB = 1, 5
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY = struct.Struct("<qQ")


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def is_elf(data: bytes) -> bool:
    """True for an ELF file of any sort."""
    return data[:4] == b"\x7fELF"


def needed(data: bytes, where: str) -> list[str]:
    """The libraries it asks the dynamic linker for (DT_NEEDED), in its order."""
    try:
        segments = _segments(data)
        tags = [tag for segment in segments if segment.kind == _DYNAMIC for tag in _dynamic(data, segment)]
        names = [value for tag, value in tags if tag == _NEEDED]
        if not names:
            return []
        table = _offset(segments, next(value for tag, value in tags if tag == _STRTAB))
        return [data[table + name : data.index(b"\0", table + name)].decode("ascii") for name in names]
    except (ValueError, OverflowError, StopIteration, struct.error) as problem:
        raise _broken(where, problem) from problem


def strip(data: bytes, where: str) -> bytes:
    """The file without what no segment covers: symbols, debug sections, the section table.

    The dynamic linker reads segments only, so that it loads and behaves as before.
    """
    try:
        fields = list(_HEADER.unpack_from(data))
        table_end = fields[5] + fields[9] * fields[10]
        end = max([table_end, *(segment.offset + segment.size for segment in _segments(data))])
        if end > len(data):
            raise ValueError("a segment ends past the file")
        # e_shoff, e_shnum, e_shstrndx: there is no section table any more.
        fields[6] = fields[12] = fields[13] = 0
        return _HEADER.pack(*fields) + data[_HEADER.size : end]
    except (ValueError, OverflowError, struct.error) as problem:
        raise _broken(where, problem) from problem


def closure(
    programs: dict[str, bytes], find: Callable[[str], bytes | None], others: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Libraries that programs (path → content) need, directly or not, and those in `others` (library → reason).

    Returns library → reason of those that `find` has, and of those it has not.
    """
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    queue = [(name, f"needed by /{path}") for path, data in sorted(programs.items()) for name in needed(data, path)]
    queue += sorted(others.items())
    for name, reason in queue:
        library = find(name)
        if name in found or name in missing:
            continue
        if library is None:
            missing[name] = reason
        else:
            found[name] = reason
            queue += [(other, f"needed by {name}") for other in needed(library, name)]
    return found, missing


def _segments(data: bytes) -> list[_Segment]:
    fields = _HEADER.unpack_from(data)
    if not is_elf(data) or fields[0][4:6] != b"\x02\x01":
        raise ValueError("not 64-bit little-endian ELF")
    start, size, count = fields[5], fields[9], fields[10]
    if count and size != _PROGRAM.size:
        raise ValueError(f"program headers of {size} bytes")
    segments = []
    for index in range(count):
        kind, _, offset, address, _, length, _, _ = _PROGRAM.unpack_from(data, start + index * size)
        segments.append(_Segment(kind, offset, address, length))
    return segments


def _dynamic(data: bytes, segment: _Segment) -> Iterator[tuple[int, int]]:
    for at in range(segment.offset, segment.offset + segment.size, _DYNAMIC_ENTRY.size):
        tag, value = _DYNAMIC_ENTRY.unpack_from(data, at)
        if tag == 0:
            return
        yield tag, value


def _offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise ValueError(f"address {address:#x} is in no segment")


def _broken(where: str, problem: Exception) -> BuildError:
    return BuildError(f"not a shared library that can be used: {problem}", where=where, fix="fetch it again")
