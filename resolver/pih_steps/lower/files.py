"""Files that a step's parameters name: in a tree, an artifact, or a member of an artifact that is an archive.

A reference is {"tree": NAME, "path": PATH} or {"artifact": NAME} or {"artifact": NAME, "member": PATH}; the
archive is a wheel (zip) or an npm package (tar.gz).
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
from typing import Any, BinaryIO, cast

from pih_runtime.errors import BuildError

Reference = Mapping[str, str]
_FIX = "fetch the archive again"


@contextmanager
def opened(reference: Reference, artifacts: Mapping[str, Path], trees: Mapping[str, Path]) -> Iterator[tuple[BinaryIO, int]]:
    """The file's stream, to be read forwards, and its size."""
    path = _outer(reference, artifacts, trees)
    try:
        if "member" not in reference:
            with path.open("rb") as file:
                yield file, path.stat().st_size
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive, archive.open(reference["member"]) as member:
                yield cast("BinaryIO", member), archive.getinfo(reference["member"]).file_size
        else:
            with tarfile.open(path, "r:gz") as bundle:
                entry = bundle.getmember(reference["member"])
                content = bundle.extractfile(entry)
                if content is None:
                    raise BuildError("the member is no file", where=described(reference), fix=_FIX)
                with content:
                    yield cast("BinaryIO", content), entry.size
    except KeyError as problem:
        raise BuildError("the archive has no such member", where=described(reference), fix=_FIX) from problem
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error) as problem:
        raise BuildError(f"cannot read: {problem}", where=described(reference), fix=_FIX) from problem


@contextmanager
def on_disk(reference: Reference, artifacts: Mapping[str, Path], trees: Mapping[str, Path]) -> Iterator[Path]:
    """The file as one on disk, for reading anywhere in it; a member is unpacked while it is needed."""
    if "member" not in reference:
        yield _outer(reference, artifacts, trees)
        return
    with tempfile.TemporaryDirectory(prefix="pih-member-") as folder:
        path = Path(folder) / "member"
        with opened(reference, artifacts, trees) as (stream, _), path.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        yield path


def read(reference: Reference, artifacts: Mapping[str, Path], trees: Mapping[str, Path]) -> bytes:
    """The whole file."""
    with opened(reference, artifacts, trees) as (stream, _):
        return stream.read()


def described(reference: Reference) -> str:
    """A reference in an error's words."""
    if "tree" in reference:
        return f"{reference['tree']}/{reference['path']}"
    return "!".join([reference["artifact"], *([reference["member"]] if "member" in reference else [])])


def _outer(reference: Reference, artifacts: Mapping[str, Path], trees: Mapping[str, Path]) -> Path:
    try:
        if "tree" in reference:
            return trees[reference["tree"]] / reference["path"]
        return artifacts[reference["artifact"]]
    except KeyError as problem:
        raise _undeclared(reference, problem) from problem


def _undeclared(reference: Any, problem: KeyError) -> BuildError:
    return BuildError(f"{problem} is not declared for {dict(reference)}", where="step", fix="write the lock again: pih lock")
