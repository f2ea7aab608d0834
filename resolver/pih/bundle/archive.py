"""A layout in one file: a tar of its folder, compressed or not.

What is not a part of a layout is refused, and so is what would take more of the disk than a bundle's archive can.
"""

from __future__ import annotations

import io
import lzma
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pih.build import extract
from pih_runtime.errors import PihError, SealError

_UNREADABLE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_PART = re.compile(r"(\./)?(oci-layout|index\.json|manifest\.json|blobs/sha256/[0-9a-f]{64})\Z")
# A compressed layer does not shrink further, and JSON by a tenth; a little is allowed to any archive.
_MAX_RATIO, _FREE = 20, 64 << 20
_ENDS = 1 << 20  # bytes of a large blob that are looked at, at either end
_FIX = "name the folder of an image layout, an archive of it, or the root that it was unpacked to"

Copy = Callable[[Path, str, IO[bytes], int], None]


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The layout's folder while the block runs: of an archive a temporary copy, else `path` itself."""
    with _copied(path, _whole) as folder:
        yield folder


@contextmanager
def outlined(path: Path) -> Iterator[Path]:
    """As `unpacked`, for those who only look at what is listed: large weights are a hole, and their digest is wrong."""
    with _copied(path, _outline) as folder:
        yield folder


@contextmanager
def _copied(path: Path, copy: Copy) -> Iterator[Path]:
    if not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pih-") as folder:
        try:
            _extract(path, Path(folder), copy)
        except (*_UNREADABLE, extract.UnsafePathError) as problem:
            raise SealError(f"no archive of an image layout: {problem}", where=str(path), fix=_FIX) from problem
        try:
            yield Path(folder)
        except PihError as problem:
            problem.where = problem.where.replace(folder, str(path))
            raise


def _extract(path: Path, root: Path, copy: Copy) -> None:
    left = path.stat().st_size * _MAX_RATIO + _FREE
    seen: set[str] = set()
    with tarfile.open(path) as tar:
        for entry in tar:
            if entry.isdir():
                continue
            if not entry.isreg() or entry.issparse() or not _PART.match(entry.name):
                raise extract.UnsafePathError(f"{entry.name!r} is no part of an image layout")
            name = entry.name.removeprefix("./")
            left -= entry.size
            if name in seen or left < 0:
                raise extract.UnsafePathError(f"{name} is there twice, or too large for this archive")
            seen.add(name)
            content = tar.extractfile(entry)
            if content is not None:
                copy(root, name, content, entry.size)


def _whole(root: Path, name: str, content: IO[bytes], size: int) -> None:
    extract.file(root, name, content, size, executable=False)


def _outline(root: Path, name: str, content: IO[bytes], size: int) -> None:
    """A blob that is a tar of one large file, with nothing but that file's bytes left out."""
    start = content.read(_ENDS)
    content.seek(0)
    if size <= 4 * _ENDS or not _holds_one_file(start, size):
        _whole(root, name, content, size)
        return
    extract.file(root, name, io.BytesIO(start), len(start), executable=False)
    content.seek(size - _ENDS)
    with (root / name).open("r+b") as writer:
        writer.seek(size - _ENDS)
        shutil.copyfileobj(content, writer)


def _holds_one_file(start: bytes, size: int) -> bool:
    """Whether all but the ends is content of the file that the archive begins with."""
    try:
        first = tarfile.TarInfo.frombuf(start[: tarfile.BLOCKSIZE], "utf-8", "strict")
    except (tarfile.TarError, ValueError):
        return False
    return first.isreg() and first.size >= size - _ENDS
