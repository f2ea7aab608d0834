"""Folder trees of any depth. Nothing here recurses: what a step or an archive nests deeply must not stop the store."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def below(root: Path) -> Iterator[os.DirEntry[str]]:
    """All that is below `root`, a folder before what it holds; links are not followed."""
    folders = [os.fspath(root)]
    while folders:
        with os.scandir(folders.pop()) as found:
            for entry in found:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def remove(path: Path) -> None:
    """Remove a file, a link or a tree, if it is there.

    Each folder is moved up to `path` before it is emptied, so that no name grows too long for the system.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    names = (path / f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        folder.chmod(0o700)
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                moved = next(names)
                Path(entry.path).chmod(0o700)  # to move a folder is to write to it: its '..' changes
                Path(entry.path).rename(moved)
                waiting.append(moved)
            else:
                Path(entry.path).unlink()
        if folder != path:
            folder.rmdir()
    path.rmdir()


def sync(path: Path) -> None:
    """Bring a file, or a folder with all that is in it, to the disk."""
    for place in [path, *(Path(item.path) for item in below(path))] if path.is_dir() else [path]:
        if place.is_symlink():
            continue
        sync_one(place)


def sync_one(path: Path) -> None:
    """Bring a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
