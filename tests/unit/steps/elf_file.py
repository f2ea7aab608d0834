"""The smallest ELF shared library with needed entries, byte by byte."""

from __future__ import annotations

import struct


def library(*needed: str, tail: bytes = b"") -> bytes:
    """One loaded segment at address 0, a dynamic section, `tail` after all segments as debug sections are."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    table = 64 + 2 * 56
    dynamic = table + len(strings)
    offsets = [strings.index(name.encode() + b"\0") for name in needed]
    tags = [(1, offset) for offset in offsets] + [(5, table), (0, 0)]
    section = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    end = dynamic + len(section)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, end if tail else 0, 0, 64, 56, 2, 64, 1, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, end, end, 4096)
    dyn = struct.pack("<IIQQQQQQ", 2, 4, dynamic, dynamic, dynamic, len(section), len(section), 8)
    return header + load + dyn + strings + section + tail
