"""A cubin, section by section, as small as it can be."""

from __future__ import annotations

import struct


def cubin(*entries, sm=89, machine=190):
    """entries: (name, registers, shared, frame or None to leave it out, launch of seven numbers or None)."""
    sections = [("", 0, b""), (".strtab", 3, b""), (".symtab", 2, b""), (".nv.info", 1, b""), (".nv.constant3", 1, b"")]
    strings, symbols, info, constants = b"\0", struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0), b"", b""
    info += struct.pack("<BBH", 3, 0x50, 9)  # an attribute whose value lies where a size would
    for index, (name, registers, shared, frame, launch) in enumerate(entries):
        at, strings = len(strings), strings + name.encode() + b"\0"
        number = len(symbols) // 24
        symbols += struct.pack("<IBBHQQ", at, 0x12, 0, len(sections), 0, 0)
        sections.append((f".text.{name}", 1, bytes(16 * (index + 1))))
        if shared:
            sections.append((f".nv.shared.{name}", 8, shared))
        info += struct.pack("<BBHII", 4, 0x2F, 8, number, registers)
        info += b"" if frame is None else struct.pack("<BBHII", 4, 0x11, 8, number, frame)
        if launch is not None:
            at, strings = len(strings), strings + b"pih_launch_" + name.encode() + b"\0"
            symbols += struct.pack("<IBBHQQ", at, 0x11, 0, 4, len(constants), 28)
            constants += struct.pack("<7i", *launch)
    contents = {".strtab": strings, ".symtab": symbols, ".nv.info": info, ".nv.constant3": constants}
    return _file([(n, k, contents.get(n, data)) for n, k, data in sections], sm, machine)


def _file(sections, sm, machine):
    names, table, body = b"", b"", b""
    for name, kind, data in [*sections, (".shstrtab", 3, None)]:
        at, names = len(names), names + name.encode() + b"\0"
        content = names if data is None else data
        size = content if isinstance(content, int) else len(content)
        table += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), size, 0, 0, 1, 0)
        body += b"" if isinstance(content, int) else content
    count = len(sections) + 1
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(b"\x7fELF\x02\x01\x01", 2, machine, 1, 0, 0, 64 + len(body), sm << 8, 64, 0, 0, 64, count, count - 1),
    )
    return header + body + table
