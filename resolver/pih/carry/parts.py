"""A file that is written in parts of a bounded size: NAME, NAME.001 and so on.

Each is written in a folder of this export's own beside its place, and gets its name only when all are whole and on the
disk, the first one last. A name that is there already stays what it is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import attrs

from pih.build import tree
from pih.build.placing import beside
from pih_runtime.errors import UsageError

_MOST = 999  # three digits of a name


@attrs.frozen
class Part:
    """size, sha256: of the payload's bytes in it, without the header of the first."""

    size: int
    sha256: str


class Parts:
    """A stream over parts of at most `limit` bytes each; the first begins behind `header` bytes that are kept free."""

    def __init__(self, path: Path, beside: Path, header: int, limit: int) -> None:
        self._path = path
        self._beside = beside
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
        """Put the header in its place and give all parts their names; returns them, the first one first.

        Raises UsageError where a name is taken by now, and then leaves none.
        """
        assert len(header) == self._header
        self._files[0].seek(0)
        self._files[0].write(header)
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        names = [self._name(number) for number in range(len(self._files))]
        placed: list[Path] = []
        try:
            for number in reversed(range(len(names))):
                _place(self._written(number), names[number])
                placed.append(names[number])
            tree.sync_one(self._path.parent)
        except BaseException:
            for name in placed:
                name.unlink()
            raise
        return names

    def close(self) -> None:
        """Nothing more is written."""
        with suppress(OSError):  # what is buffered needs room that there is not, and is wanted no more
            for file in self._files:
                file.close()

    def _open(self) -> None:
        number = len(self._files)
        if number > _MOST:
            raise UsageError(f"more than {_MOST} parts", where=str(self._path), fix="give --split a larger size")
        file = self._written(number).open("wb")
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

    def _written(self, number: int) -> Path:
        return self._beside / str(number)


def check_place(path: Path) -> None:
    """Raises UsageError where the name is taken, or its folder is missing."""
    for name in (path, path.with_name(f"{path.name}.001")):
        if os.path.lexists(name):
            raise _taken(name)
    if not path.parent.is_dir():
        raise UsageError("there is no such folder", where=str(path.parent), fix="make it, or name another place")


@contextmanager
def writing(path: Path, header: int, limit: int) -> Iterator[Parts]:
    """Parts to write in the block; unless they are published there, nothing of them stays. Raises as `check_place`."""
    check_place(path)
    with beside(path, path) as folder:
        parts = Parts(path, folder, header, limit)
        try:
            yield parts
        finally:
            parts.close()


def _place(written: Path, name: Path) -> None:
    """By a link, which unlike a rename never takes the place of what another wrote meanwhile."""
    try:
        os.link(written, name)
    except OSError as problem:
        if os.path.lexists(name):
            raise _taken(name) from problem
        _take(written, name)  # a file system without links, such as that of a stick


def _take(written: Path, name: Path) -> None:
    """Two could rename to one name, but only one of them makes it."""
    try:
        name.touch(exist_ok=False)
    except FileExistsError as problem:
        raise _taken(name) from problem
    try:
        written.rename(name)
    except BaseException:
        name.unlink()
        raise


def _taken(name: Path) -> UsageError:
    return UsageError("is there already", where=str(name), fix="name another file, or remove it and all its parts")
