"""The chunk table of a weights file: what each fixed-size chunk of it hashes to.

One text form, so that the sha256 of the text itself, the root, stands for every byte of the weights:

    pih-weights-digests 1
    size 1192135552
    chunk 4194304
    <sha256 of bytes 0..chunk, 64 lower-case hex digits>
    <… of the next chunk; the last may be shorter>

Lines end with a newline, the last too; numbers have no leading zero. `sha256sum` of the table gives the root, and
`split --bytes=4M --filter=sha256sum` of the weights gives the lines. A table is untrusted until its root is the
expected one, so `parse` believes no number in it before the text is as long as that number says.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

SMALLEST, LARGEST = 1 << 12, 1 << 30  # bytes of a chunk, a power of two
MOST = 1 << 26  # bytes of a table: 4 TB of weights in chunks of 4 MiB
_HEAD = re.compile(rb"pih-weights-digests 1\nsize ([1-9][0-9]{0,18})\nchunk ([1-9][0-9]{0,9})\n")
_LINES = re.compile(rb"(?:[0-9a-f]{64}\n)*")
_LINE = 65
_SHA256 = 32


@dataclass(frozen=True, slots=True)
class Table:
    """size: bytes of the weights file; chunk: bytes of each chunk but the last; digests: 32 bytes a chunk, in order."""

    size: int
    chunk: int
    digests: bytes

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return len(self.digests) // _SHA256

    def covering(self, start: int, end: int) -> range:
        """The chunks that hold bytes start..end."""
        return range(start // self.chunk, -(-end // self.chunk)) if start < end else range(0)

    def holds(self, index: int, data: memoryview) -> bool:
        """Whether chunk `index` of the weights file `data` is the one of the table. Long chunks leave the GIL."""
        start = index * self.chunk
        digest = hashlib.sha256(data[start : start + self.chunk]).digest()
        return digest == self.digests[index * _SHA256 : (index + 1) * _SHA256]


def table_of(data: memoryview, chunk: int) -> Table:
    """The table of a weights file, which is not empty."""
    digests = b"".join(hashlib.sha256(data[at : at + chunk]).digest() for at in range(0, len(data), chunk))
    return Table(len(data), chunk, digests)


def to_text(table: Table) -> bytes:
    """The table's one text."""
    hexed = table.digests.hex("\n", _SHA256)
    return f"pih-weights-digests 1\nsize {table.size}\nchunk {table.chunk}\n{hexed}\n".encode()


def parse(text: bytes) -> Table:
    """The table that `to_text` wrote; ValueError says what is wrong with any other text."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("it does not begin with its kind, size and chunk")
    size, chunk = int(head[1]), int(head[2])
    if size >= 1 << 63:
        raise ValueError(f"no file has {size} bytes")
    if not SMALLEST <= chunk <= LARGEST or chunk & (chunk - 1):
        raise ValueError(f"chunks of {chunk} bytes are not a power of two from {SMALLEST} to {LARGEST}")
    count, length = -(-size // chunk), len(text) - head.end()
    if length != count * _LINE:
        raise ValueError(f"{size} bytes are {count} chunks of {chunk}, the table has {length / _LINE:g} lines for them")
    if not _LINES.fullmatch(text, head.end()):
        raise ValueError("a line is not a sha256 in lower-case hex digits")
    return Table(size, chunk, bytes.fromhex(text[head.end() :].decode()))


def root(text: bytes) -> str:
    """'sha256:…' of a table's text."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
