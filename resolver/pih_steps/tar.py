"""Deterministic tar and gzip: the same entries give the same bytes everywhere.

USTAR, sorted by path, no times, no names, owner 0; a file of 8 GiB or more has its size
in the GNU base-256 form, which every reader knows. Big files are streamed.
"""

from __future__ import annotations

import hashlib
import posixpath
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pih_runtime.errors import BuildError

CHUNK = 1 << 20
BLOCK = 512
_OCTAL_LIMIT = 1 << 33
# Member header: method deflate, no flags, no time, best compression, operating system unknown.
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"


class Sink(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file (content: its bytes, or the path of a file to stream), or a symbolic link (target)."""

    path: str
    content: bytes | Path = b""
    target: str = ""
    mode: int = 0o644


class Hashing:
    """Passes bytes on, counting and digesting them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes, /) -> None:
        """Count, digest and pass on."""
        self._hash.update(data)
        self.size += len(data)
        self._sink.write(data)

    @property
    def digest(self) -> str:
        """'sha256:…' of what went through so far."""
        return "sha256:" + self._hash.hexdigest()


class Gzip:
    """Compresses to `sink` with a header of its own: the standard library's differs by Python version."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        self._crc = 0
        self._size = 0
        sink.write(_GZIP_HEADER)

    def write(self, data: bytes, /) -> None:
        """Compress the next bytes."""
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._sink.write(self._deflate.compress(data))

    def finish(self) -> None:
        """Write what is still held back and the trailer; nothing may be written after it."""
        self._sink.write(self._deflate.flush())
        self._sink.write(struct.pack("<II", self._crc, self._size & 0xFFFFFFFF))


def write(sink: Sink, entries: Iterable[Entry], folders: Iterable[tuple[str, int]] = ()) -> None:
    """Write an archive of `entries`, their parent folders (mode 755) and `folders` (path, mode)."""
    files: dict[str, Entry] = {}
    for entry in entries:
        top = entry.path.split("/", 1)[0]
        if top in ("", ".", "..") or posixpath.normpath(entry.path) != entry.path:
            raise BuildError(f"{entry.path!r} is no path below the archive's root")
        if files.setdefault(entry.path, entry) is not entry:
            raise BuildError(f"two files want to be {entry.path}")
    modes = dict.fromkeys((parent for path in files for parent in _parents(path)), 0o755)
    for path, mode in folders:
        modes.update(dict.fromkeys(_parents(path), 0o755))
        modes[path] = mode
    for path in sorted({*files, *modes}, key=lambda name: name.encode()):
        if path not in files:
            sink.write(header(path + "/", modes[path], 0, b"5", ""))
        elif path in modes:
            raise BuildError(f"{path} is a folder and something else at once")
        elif files[path].target:
            sink.write(header(path, 0o777, 0, b"2", files[path].target))
        else:
            _file(sink, files[path])
    sink.write(bytes(2 * BLOCK))


def _parents(path: str) -> Iterable[str]:
    while path := posixpath.dirname(path):
        yield path


def _file(sink: Sink, entry: Entry) -> None:
    if isinstance(entry.content, bytes):
        size = len(entry.content)
        sink.write(header(entry.path, entry.mode, size, b"0", ""))
        sink.write(entry.content)
    else:
        size = entry.content.stat().st_size
        sink.write(header(entry.path, entry.mode, size, b"0", ""))
        left = size
        with entry.content.open("rb") as stream:
            while left and (chunk := stream.read(min(CHUNK, left))):
                left -= len(chunk)
                sink.write(chunk)
        if left:
            raise BuildError("the file shrank while it was read", where=str(entry.content))
    sink.write(bytes(-size % BLOCK))


def header(path: str, mode: int, size: int, kind: bytes, target: str) -> bytes:
    """The 512 bytes before an entry. kind: its type flag, such as b"0" for a file."""
    prefix, name = _split(path)
    link = target.encode()
    if len(link) > 100:
        raise BuildError(f"the target of link {path} is longer than the 100 bytes of a tar header")
    block = b"".join(
        (
            name.ljust(100, b"\0"),
            b"%07o\0" % mode,
            b"%07o\0" % 0,
            b"%07o\0" % 0,
            b"%011o\0" % size if size < _OCTAL_LIMIT else b"\x80" + size.to_bytes(11, "big"),
            b"%011o\0" % 0,
            b" " * 8,
            kind,
            link.ljust(100, b"\0"),
            b"ustar\x0000",
            bytes(32 + 32),
            b"%07o\0%07o\0" % (0, 0),
            prefix.ljust(155, b"\0"),
            bytes(12),
        )
    )
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _split(path: str) -> tuple[bytes, bytes]:
    """(prefix, name) of a path; cut at the last slash that leaves both short enough."""
    raw = path.encode()
    if len(raw) <= 100:
        return b"", raw
    cut = raw.rfind(b"/", 0, min(156, len(raw) - 1))
    if cut < 0 or len(raw) - cut - 1 > 100:
        raise BuildError(f"path {path} is too long for a tar header")
    return raw[:cut], raw[cut + 1 :]
