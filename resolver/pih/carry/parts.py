"""A file that is written in parts of a bounded size: NAME, NAME.001 and so on.

Each is written beside its place and gets its name only when all are whole and on the disk, the first one last.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs

from pih_runtime.errors import UsageError

_MOST = 999  # three digits of a name


@attrs.frozen
class Part:
    """size, sha256: of the payload's bytes in it, without the header of the first."""

    size: int
    sha256: str


class Parts:
    """A stream over parts of at most `limit` bytes each; the first begins behind `header` bytes that are kept free."""

    def __init__(self, path: Path, header: int, limit: int) -> None:
        self._path = path
        self._header = header
        self._limit = limit
        self._done: list[Part] = []
        self._files: list[BinaryIO] = []
        self._open()

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        while view:
            room = self._limit - self._before() - self._size
            if room <= 0:
                self._finish_part()
                self._open()
                continue
            piece = view[:room]
            self._files[-1].write(piece)
            self._hash.update(piece)
            self._size += len(piece)
            view = view[room:]

    def finish(self) -> tuple[Part, ...]:
        """No bytes follow: what the parts are."""
        self._finish_part()
        return tuple(self._done)

    def publish(self, header: bytes) -> list[Path]:
        """Put the header in its place and give all parts their names; returns them, the first one first."""
        assert len(header) == self._header
        self._files[0].seek(0)
        self._files[0].write(header)
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        names = [self._name(number) for number in range(len(self._files))]
        for number in reversed(range(len(names))):
            self._beside(number).replace(names[number])
        for left in self._longer(len(names)):
            left.unlink()
        return names

    def discard(self) -> None:
        """Leave nothing behind."""
        for number, file in enumerate(self._files):
            file.close()
            self._beside(number).unlink(missing_ok=True)

    def _open(self) -> None:
        number = len(self._files)
        if number > _MOST:
            raise UsageError(f"more than {_MOST} parts", where=str(self._path), fix="give --split a larger size")
        file = self._beside(number).open("wb")
        self._files.append(file)
        if number == 0:
            file.seek(self._header)
        self._hash = hashlib.sha256()
        self._size = 0

    def _finish_part(self) -> None:
        self._done.append(Part(self._size, self._hash.hexdigest()))

    def _before(self) -> int:
        return self._header if len(self._files) == 1 else 0

    def _name(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number:03}") if number else self._path

    def _beside(self, number: int) -> Path:
        name = self._name(number)
        return name.with_name(f".{name.name}.new")

    def _longer(self, count: int) -> Iterator[Path]:
        """Parts of an earlier, longer export under the same name."""
        number = count or 1
        while (path := self._name(number)).is_file():
            yield path
            number += 1


@contextmanager
def writing(path: Path, header: int, limit: int) -> Iterator[Parts]:
    """Parts to write in the block; unless they are published there, nothing of them stays."""
    parts = Parts(path, header, limit)
    try:
        yield parts
    finally:
        parts.discard()
