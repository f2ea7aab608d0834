"""Fat binaries inside a host library: device code for several processors, of which a device loads what suits it.

Not published by their maker and read here as `cuobjdump` lists them: a container begins with the magic 0xba55ed50, a
version of 1, the size of this header (16) and that of all that follows: entries, one after the other, each of a header
(kind: 1 PTX, 2 cubin; its own size; that of the payload; at 28 the processor) and a payload, compressed or not.
Containers begin at multiples of 8 bytes. Contents are untrusted: each offset is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI")
_KINDS = {1: "ptx", 2: "cubin"}
_LEAST = 64  # bytes of an entry's header
# Up to here a cubin runs on later processors of its own major version; from sm_90 on it may be made for one alone.
_PORTABLE = 89


@dataclass(frozen=True, slots=True)
class Entry:
    """kind: cubin, ptx, or '' for what is not known. sm: 89 for sm_89. size: bytes as they lie in the file."""

    kind: str
    sm: int
    size: int


@dataclass(frozen=True, slots=True)
class Container:
    """entries: in the file's order. unread: bytes of it that are not understood."""

    entries: tuple[Entry, ...]
    unread: int = 0


def containers(data: bytes) -> Iterator[Container]:
    """Every fat binary in a file's bytes."""
    at = data.find(MAGIC)
    while at >= 0:
        size = _size(data, at)
        if size:
            yield _container(data, at + _HEADER.size, at + size)
        at = data.find(MAGIC, at + max(size, 1))


def usable(container: Container, sm: int) -> Entry | None:
    """What a device of this compute capability loads of it: its best cubin, else PTX to compile; None for nothing."""
    cubins = [entry for entry in container.entries if entry.kind == "cubin" and _runs(entry.sm, sm)]
    texts = [entry for entry in container.entries if entry.kind == "ptx" and entry.sm <= sm]
    return max(cubins or texts, key=lambda entry: entry.sm, default=None)


def by_processor(found: Iterable[Container]) -> dict[str, int]:
    """Bytes of each sort of code, as 'sm_80' and 'PTX 120', sorted by processor; 'unknown' for the rest."""
    sums: dict[tuple[int, str], int] = {}
    for container in found:
        for entry in container.entries:
            name = {"cubin": f"sm_{entry.sm}", "ptx": f"PTX {entry.sm}"}.get(entry.kind, "unknown")
            key = (entry.sm if entry.kind else 1 << 32, name)
            sums[key] = sums.get(key, 0) + entry.size
        if container.unread:
            sums[1 << 32, "unknown"] = sums.get((1 << 32, "unknown"), 0) + container.unread
    return {name: size for (_, name), size in sorted(sums.items())}


def _runs(made_for: int, sm: int) -> bool:
    return made_for == sm or (made_for // 10 == sm // 10 and made_for < sm <= _PORTABLE)


def _size(data: bytes, at: int) -> int:
    """Bytes of the container that begins here; 0 where the magic stands for something else."""
    if at % 8 or at + _HEADER.size > len(data):
        return 0
    _, version, header, size = _HEADER.unpack_from(data, at)
    return _HEADER.size + size if (version, header) == (1, _HEADER.size) and at + header + size <= len(data) else 0


def _container(data: bytes, at: int, end: int) -> Container:
    found: list[Entry] = []
    while at < end:
        if at + _LEAST > end:
            return Container(tuple(found), end - at)
        kind, _, header, size, _, _, _, _, sm = _ENTRY.unpack_from(data, at)
        if header < _LEAST or at + header + size > end:
            return Container(tuple(found), end - at)
        found.append(Entry(_KINDS.get(kind, ""), sm, size))
        at += header + size
    return Container(tuple(found))
