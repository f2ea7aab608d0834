"""The entries of a layer, which must be just what `pih_steps.tar` writes: each header is made again and compared.

So whatever else the tar format has (times, owners, links out, devices, sparse files, names that come twice) is refused
by one comparison, and nothing of an entry is believed before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import attrs

from pih.bundle.blob import Archive
from pih_runtime.errors import BuildError
from pih_steps import tar

FILE, LINK, FOLDER = b"0", b"2", b"5"
_LARGEST = 1 << 62


class NotCanonicalError(ValueError):
    """The archive is not one that `pih_steps.tar` would write."""


@attrs.frozen
class Entry:
    """path: without a slash at either end. kind: FILE, LINK (target) or FOLDER. size: in bytes, of a file."""

    path: str
    kind: bytes
    mode: int
    size: int
    target: str


class Reader:
    """Yields the entries in order; `content`, before the next one, the bytes of the file that was yielded last."""

    def __init__(self, stream: IO[bytes] | Archive) -> None:
        self._stream = stream
        self._left = 0

    def __iter__(self) -> Iterator[Entry]:
        before = b""
        while (block := self._block()) != bytes(tar.BLOCK):
            entry = parsed(block)
            name = entry.path.encode()
            if name <= before:
                raise NotCanonicalError(f"{entry.path!r} is not in order, or comes twice")
            before = name
            self._left = entry.size
            yield entry
            self._skip()
            if self._exactly(-entry.size % tar.BLOCK).strip(b"\0"):
                raise NotCanonicalError(f"there is something between {entry.path!r} and the next entry")
        if self._block() != bytes(tar.BLOCK) or self._stream.read(1):
            raise NotCanonicalError("the archive does not end where it should")

    def content(self) -> Iterator[bytes]:
        """The file's bytes, or those that are left of them."""
        while self._left:
            chunk = self._exactly(min(self._left, tar.CHUNK))
            self._left -= len(chunk)
            yield chunk

    def _skip(self) -> None:
        """What nobody asked for: a file is passed over, a stream is read."""
        if self._stream.seekable():
            self._stream.seek(self._left, 1)
            self._left = 0
        for _ in self.content():
            continue

    def _block(self) -> bytes:
        return self._exactly(tar.BLOCK)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._stream.read(count - len(data))
            if not chunk:
                raise NotCanonicalError("the archive is cut short")
            data += chunk
        return bytes(data)


def parsed(block: bytes) -> Entry:
    """An entry of its header's 512 bytes; raises NotCanonicalError unless they are those of `tar.header`."""
    kind, size_field = block[156:157], block[124:136]
    try:
        name, prefix = _text(block[:100]), _text(block[345:500])
        path = f"{prefix}/{name}" if prefix else name
        target, mode = _text(block[157:257]), int(block[100:107], 8)
        size = int.from_bytes(size_field[1:], "big") if size_field[0] == 0x80 else int(size_field[:11], 8)
        known = kind in (FILE, LINK, FOLDER) and (size == 0 or kind == FILE) and size <= _LARGEST
        if not known or tar.header(path, mode, size, kind, target) != block:
            raise NotCanonicalError(f"the header of {path!r} is not that of a file, link or folder of a bundle")
    except (ValueError, OverflowError, BuildError) as problem:
        raise NotCanonicalError(str(problem)) from problem
    if kind == FOLDER and path.endswith("/"):
        path = path[:-1]
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise NotCanonicalError(f"{path!r} is no path below the root")
    if (kind == LINK) != bool(target):
        raise NotCanonicalError(f"{path!r} has a target, or should have one")
    return Entry(path, kind, mode, size, target)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode()
