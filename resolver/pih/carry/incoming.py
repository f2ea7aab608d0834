"""Reading a mirror into the store: every file is checked against the listing, and the listing against what is there.

A mirror cannot bring anything but bytes under their own digests: what a build uses of them, its lock says.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import attrs

from pih.build import tree
from pih.build.progress import FetchDone, FetchFailed, FetchStarted, Listener
from pih.build.store import Store
from pih.carry import listing
from pih.carry.listing import Listing
from pih.tarball import TarFile
from pih_runtime.errors import FetchError, PihError, UsageError

_CHUNK = 1 << 20
_FIX = "copy the mirror again, or export it again"


@attrs.frozen
class Arrived:
    """What came. added: digests that the store had not."""

    listing: Listing
    added: tuple[str, ...]


def bring(path: Path, store: Store, listener: Listener) -> Arrived:
    """Check a mirror's files, a folder's or an archive's, and put its artifacts into the store.

    Raises FetchError for the first that is missing, not listed, or not what it should be. What was good before stays.
    """
    try:
        files = _files(path)
        return _bring(_listing(files, path), files, path, store, listener)
    except (tarfile.TarError, EOFError) as problem:
        raise FetchError(f"not a mirror: {problem}", where=str(path), fix=_FIX) from problem


def is_mirror(path: Path) -> bool:
    """Whether a listing and the files that it lists are all that is there. Their bytes are not read."""
    try:
        files = _files(path)
        found = _listing(files, path)
        return {name for name, _, _ in files} <= found.files.keys()
    except (PihError, tarfile.TarError, EOFError, OSError):
        return False


def _listing(files: Iterator[tuple[str, int, IO[bytes]]], path: Path) -> Listing:
    name, size, stream = next(files, ("", 0, None))
    if stream is None:
        raise FetchError(f"no mirror: it has no {listing.NAME}", where=str(path), fix=_FIX)
    if name != listing.NAME:
        what = f"{name!r} comes before {listing.NAME}, which must be the first file of an archive"
        raise FetchError(what, where=str(path), fix="unpack it and import the folder, or export the mirror again")
    if size > listing.MOST:
        raise FetchError(f"{listing.NAME} has {size} bytes, and may have {listing.MOST}", where=str(path), fix=_FIX)
    return listing.from_json(stream.read(), f"{path}: {listing.NAME}")


def _bring(
    found: Listing, files: Iterator[tuple[str, int, IO[bytes]]], path: Path, store: Store, listener: Listener
) -> Arrived:
    missing, added = dict(found.files), []
    words = {f"sha256/{item.sha256}": item.name for item in found.artifacts}
    with store.workspace() as work:
        for name, size, stream in files:
            if name not in missing:
                raise FetchError(f"{name!r} is not listed, or comes twice", where=str(path), fix=_FIX)
            sha256, wanted = missing.pop(name)
            listener(FetchStarted(words.get(name, name), size))
            try:
                if size != wanted:
                    raise FetchError(
                        f"has {size} bytes where {listing.NAME} says {wanted}", where=f"{path}: {name}", fix=_FIX
                    )
                copy = work / sha256
                _copy(stream, copy, sha256, f"{path}: {name}")
                if name in words and not store.has(sha256, wanted):
                    store.adopt(copy, sha256, wanted)
                    added.append(sha256)
                else:
                    copy.unlink()
            except BaseException:
                listener(FetchFailed(words.get(name, name)))
                raise
            listener(FetchDone(words.get(name, name), "the mirror"))
    if missing:
        raise FetchError(f"{min(missing)} is listed, and missing", where=str(path), fix=_FIX)
    return Arrived(found, tuple(added))


def _copy(stream: IO[bytes], target: Path, sha256: str, where: str) -> None:
    hasher = hashlib.sha256()
    with target.open("wb") as writer:
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
            writer.write(chunk)
    if hasher.hexdigest() != sha256:
        target.unlink()
        raise FetchError(f"has sha256 {hasher.hexdigest()}, which is not the listed one", where=where, fix=_FIX)


def _files(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of each file, the listing first; nothing but plain files and folders is let through."""
    if path.is_dir():
        yield from _of_folder(path)
        return
    if not path.is_file():  # a pipe would wait
        raise UsageError("neither a folder nor a file", where=str(path), fix="name a mirror")
    with TarFile.open(path, "r:") as archive:
        for member in archive:
            if member.isdir():
                continue
            content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
            if content is None:
                raise FetchError(f"{member.name!r} is no plain file", where=str(path), fix=_FIX)
            yield member.name.removeprefix("./"), member.size, content


def _of_folder(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Nothing but the listing is looked at before it was found good: it may be any folder, and a large one."""
    if not os.path.lexists(path / listing.NAME):
        return
    yield from _opened(path, listing.NAME)
    names = sorted(Path(item.path).relative_to(path).as_posix() for item in tree.below(path) if not _is_folder(item))
    for name in names:
        if name != listing.NAME:
            yield from _opened(path, name)


def _opened(path: Path, name: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    if not stat.S_ISREG((path / name).lstat().st_mode):
        raise FetchError(f"{name!r} is no plain file", where=str(path), fix=_FIX)
    with (path / name).open("rb") as stream:
        yield name, os.fstat(stream.fileno()).st_size, stream


def _is_folder(item: os.DirEntry[str]) -> bool:
    return item.is_dir(follow_symlinks=False)
