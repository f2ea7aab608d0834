"""A file or folder at a place that a user named: made beside it, brought to the disk, and never there by half."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pih.build import tree
from pih_runtime.errors import PihError

_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextmanager
def placed(output: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """A path beside `output` to make a file or a folder at; after the block it takes the place of what was there.

    check: raises where what is at a place must stay; asked before anything is made, and again before it is replaced.
    An error names `output`, not what is beside it. Unless all goes well, what was there is still there.
    """
    place = _settled(output)
    check(place)
    with _told(output, place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    with beside(place, output) as folder:
        made = folder / "new"
        yield made
        tree.sync(made)
        check(place)
        _swap(made, place, folder / "before")
        tree.sync_one(place.parent)
        tree.remove(folder / "before")


@contextmanager
def beside(place: Path, output: Path) -> Iterator[Path]:
    """A folder beside `place` while the block runs. An error about what is in it, or its disk, names `output`."""
    with _told(output, place.parent):
        made = tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent)
    with made as folder, _told(output, Path(folder)):
        yield Path(folder)


def _settled(path: Path) -> Path:
    """The path by itself: the working folder may be the very one that is replaced."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def _swap(made: Path, place: Path, before: Path) -> None:
    """A file is replaced at once, a folder moved away first, and back again where that is not the end of it."""
    try:
        if place.is_dir():
            place.rename(before)
        made.rename(place)
    except BaseException:
        if before.exists() and not os.path.lexists(place):
            before.rename(place)
        raise


@contextmanager
def _told(output: Path, folder: Path) -> Iterator[None]:
    """Errors about what is below the folder are about `output`, and so are those of a disk without room."""
    try:
        yield
    except PihError as problem:
        problem.where = problem.where.replace(str(folder / "new"), str(output))
        raise
    except OSError as problem:
        named = os.fsdecode(problem.filename) if isinstance(problem.filename, str | bytes) else ""
        if named and problem.errno not in _ROOM and not Path(named).is_relative_to(folder):
            raise
        raise OSError(problem.errno, problem.strerror, str(output)) from problem
