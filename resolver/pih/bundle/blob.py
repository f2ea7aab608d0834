"""The archive in a layer's blob, digested as it is read: compressed bytes and what they unpack to."""

from __future__ import annotations

import hashlib
import io
import zlib
from typing import BinaryIO

import attrs

CHUNK = 1 << 18
# A layer of code and data shrinks to a third; what unpacks a thousandfold was made to fill a disk.
_MAX_RATIO = 200


class DamagedError(ValueError):
    """The blob is not what a layer is."""


@attrs.frozen
class Sums:
    """digest and size of the blob, digest of the archive in it."""

    digest: str
    size: int
    diff_id: str


class Archive(io.RawIOBase):
    """A readable stream of the archive's bytes; `finish` reads what is left and says what all of it was.

    chunk: bytes of the blob that are read at a time.
    """

    def __init__(self, stream: BinaryIO, *, compressed: bool, chunk: int = CHUNK) -> None:
        super().__init__()
        self._stream = stream
        self._chunk = chunk
        self._inflate = zlib.decompressobj(wbits=31) if compressed else None
        self._blob = hashlib.sha256()
        self._inside = hashlib.sha256() if compressed else self._blob
        self._size = 0
        self._unpacked = 0
        self._held = b""
        self._last = (0, 1)

    def readable(self) -> bool:
        """True: this is a stream to read."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # io's own is wider
        """Fill the buffer with the next bytes of the archive."""
        while not self._held:
            chunk = self._stream.read(self._chunk)
            if not chunk:
                return 0
            self._held = self._unpack(chunk)
            self._last = (len(chunk), max(1, len(self._held)))
        count = min(len(buffer), len(self._held))
        buffer[:count] = self._held[:count]
        self._held = self._held[count:]
        return count

    @property
    def taken(self) -> int:
        """Bytes of the blob that what was read so far came from; within a chunk they are shared by size."""
        size, unpacked = self._last
        return self._size - size * len(self._held) // unpacked

    def finish(self) -> Sums:
        """Read to the end; raises DamagedError where the compressed data is cut short."""
        while self.read(CHUNK):
            continue
        if self._inflate and not self._inflate.eof:
            raise DamagedError("cut short")
        return Sums(f"sha256:{self._blob.hexdigest()}", self._size, f"sha256:{self._inside.hexdigest()}")

    def _unpack(self, chunk: bytes) -> bytes:
        self._blob.update(chunk)
        self._size += len(chunk)
        if self._inflate is None:
            return chunk
        if self._inflate.eof:
            raise DamagedError("bytes follow the compressed data")
        try:
            data = self._inflate.decompress(chunk, (CHUNK + self._size) * _MAX_RATIO - self._unpacked)
        except zlib.error as problem:
            raise DamagedError(f"not gzip data: {problem}") from problem
        if self._inflate.unconsumed_tail:
            raise DamagedError(f"unpacks to more than {_MAX_RATIO} times its size")
        if self._inflate.unused_data:
            raise DamagedError("bytes follow the compressed data")
        self._unpacked += len(data)
        self._inside.update(data)
        return data
