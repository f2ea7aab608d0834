"""A copy of an image layout where a user wants one, made beside and renamed: the folder is never there by half."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from pih.build import tree
from pih_runtime.errors import UsageError, WorkerError

_FICLONE = 0x40049409  # linux/fs.h
_PARTS = {"oci-layout", "index.json", "blobs"}


def copied(image: Path, output: Path, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """A layout of the user's own: hard links would let an edit reach the store. Replaces no other folder than a layout.

    finish: changes the copy before it is there for others.
    """
    if os.path.lexists(output) and not _is_layout(output):
        raise UsageError("is there already, and is no image layout", where=str(output), fix="name another folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as beside:
        made, before = Path(beside, "new"), Path(beside, "before")
        try:
            shutil.copytree(image, made, copy_function=_copy)
        except WorkerError as problem:
            problem.where = problem.where.replace(str(made), str(output))
            raise
        finish(made)
        tree.sync(made)
        if output.exists():
            output.rename(before)
        made.rename(output)
    return output


def _copy(source: str, target: str) -> None:
    """Where the file system can share the blocks of two files, nothing is written."""
    try:
        with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
            try:
                fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
            except OSError:
                shutil.copyfileobj(reader, writer, 1 << 20)
        shutil.copystat(source, target)
    except OSError as problem:  # the first one ends it: copytree would try all other files, and tell of each
        fix = "make room or give access, or name a folder on another disk"
        raise WorkerError(
            problem.strerror or "cannot be copied", where=problem.filename or target, fix=fix
        ) from problem


def _is_layout(path: Path) -> bool:
    """A folder with what a layout has and nothing else: all of it can be made again."""
    if path.is_symlink() or not path.is_dir():
        return False
    return {entry.name for entry in path.iterdir()} - {"manifest.json"} == _PARTS
