"""A layout in one file: a tar of its folder, compressed or not.

What is not a part of a layout is refused, and so is what would take more of the disk than a bundle's archive can.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shlex
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from pih.build import extract
from pih.tarball import RefusedError, TarFile
from pih_runtime.errors import PihError, SealError, UsageError, WorkerError
from pih_steps.spec import of_the_disk

_UNREADABLE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_PART = re.compile(r"(\./)?(oci-layout|index\.json|manifest\.json|blobs/sha256/[0-9a-f]{64})\Z")
# A compressed layer does not shrink further, and JSON by a tenth; a little is allowed to any archive.
_MAX_RATIO, _FREE = 20, 64 << 20
_CHUNK = 1 << 20
_Mode = Literal["r:", "r:gz", "r:bz2", "r:xz"]
# RFC 1952, 2.3.1; bzip2's and xz's own file formats; RFC 8878, 3.1.1
_MODES: dict[bytes, _Mode] = {b"\x1f\x8b": "r:gz", b"BZh": "r:bz2", b"\xfd7zXZ\0": "r:xz"}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_LARGE = 16 << 20  # bytes of a file that is no document: the largest that `layout` reads
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
    name = shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))
    if _carried(path):
        what = "this is a file that carries a bundle, which checks, shows and installs itself"
        raise UsageError(what, where=str(path), fix=f"sh {name} verify; sh {name} shows what else it does")
    begins = _begins(path)
    if begins.startswith(_ZSTANDARD):
        raise UsageError("it is compressed with zstd, which is not read here", where=str(path), fix=f"zstd -d {name}")
    with tempfile.TemporaryDirectory(prefix="pih-") as folder:
        try:
            # by its first bytes: a reader that tries each form in turn takes zeros without an end for the padding of xz
            modes: list[_Mode] = [mode for magic, mode in _MODES.items() if begins.startswith(magic)]
            _extract(path, modes[0] if modes else "r:", Path(folder), copy)
        except (*_UNREADABLE, extract.UnsafePathError) as problem:
            if of_the_disk(problem):
                raise _full(path, folder, problem) from problem
            raise SealError(f"no archive of an image layout: {_words(problem)}", where=str(path), fix=_FIX) from problem
        try:
            yield Path(folder)
        except PihError as problem:
            problem.where = problem.where.replace(folder, str(path))
            raise


def _full(path: Path, folder: str, problem: Exception) -> WorkerError:
    said = getattr(problem, "strerror", "") or "it cannot be written"
    what = f"the archive cannot be unpacked to look into it: {said} in {Path(folder).parent}"
    return WorkerError(what, where=str(path), fix="make room there, or set TMPDIR to a folder on another disk")


def _words(problem: Exception) -> str:
    """Our own words, and none of tarfile's about the formats that it tried."""
    ours = isinstance(problem, extract.UnsafePathError | RefusedError) or str(problem) == "unexpected end of data"
    return str(problem) if ours else "it is damaged, or no tar at all"


def _carried(path: Path) -> bool:
    """Whether this is a file of `pih export`, by how its script begins."""
    with path.open("rb") as file:
        first, _, third = (file.readline(1024) for _ in range(3))
    return first == b"#!/bin/sh\n" and third.startswith(b"SELF=")


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)


def _extract(path: Path, mode: _Mode, root: Path, copy: Copy) -> None:
    left = path.stat().st_size * _MAX_RATIO + _FREE
    seen: set[str] = set()
    with TarFile.open(path, mode) as tar:
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
        assert tar.fileobj is not None
        left = _FREE
        while rest := tar.fileobj.read(_CHUNK):  # two blocks of zeros end it, and some more fill it up
            left -= len(rest)
            if left < 0 or rest.count(0) != len(rest):
                raise extract.UnsafePathError("there are bytes behind its end")


def _whole(root: Path, name: str, content: IO[bytes], size: int) -> None:
    extract.file(root, name, content, size, executable=False)


def _outline(root: Path, name: str, content: IO[bytes], size: int) -> None:
    """A blob that is a tar, with nothing but the bytes of its large files left out; read once, from front to end."""
    extract.file(root, name, io.BytesIO(), 0, executable=False)
    with (root / name).open("r+b") as writer:
        while block := content.read(tarfile.BLOCKSIZE):
            writer.write(block)
            follows = _follows(block)
            if follows is None:
                shutil.copyfileobj(content, writer, _CHUNK)
            elif follows > _LARGE:
                writer.seek(follows, os.SEEK_CUR)
                content.seek(follows, os.SEEK_CUR)
            else:
                _copy(content, writer, follows)
        writer.truncate(size)


def _follows(block: bytes) -> int | None:
    """Bytes of the file after an entry's header, with what fills its last block; None where it is no header."""
    try:
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, ValueError):
        return None
    return None if entry.size < 0 else -(-entry.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _copy(content: IO[bytes], writer: IO[bytes], size: int) -> None:
    while size and (chunk := content.read(min(size, _CHUNK))):
        writer.write(chunk)
        size -= len(chunk)
