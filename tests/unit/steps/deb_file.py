"""Debian packages made in memory, well formed or not."""

from __future__ import annotations

import io
import lzma
import tarfile

CONTROL = "Package: tiny\nVersion: 1.0-1\nArchitecture: amd64\nDescription: a package\n for tests\n"


def tarball(*entries: tuple[str, bytes, dict]) -> bytes:
    """Entries are (name, data, attributes of the TarInfo)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data, attributes in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def ar(**members: bytes) -> bytes:
    out = b"!<arch>\n"
    for key, data in members.items():
        name = key.replace("__", ".").replace("_", "-")
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        out += header + data + b"\n" * (len(data) % 2)
    return out


def package(*entries: tuple[str, bytes, dict], control: str = CONTROL) -> bytes:
    return ar(
        debian_binary=b"2.0\n",
        control__tar__xz=lzma.compress(tarball(("./control", control.encode(), {}))),
        data__tar__xz=lzma.compress(tarball(*entries)),
    )
