"""PIH_MIRROR: folders of files that may be what a lock wants, under any name.

A file is recognised by its digest; only files whose size the lock asks for are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pih.build.store import measure
from pih_runtime.errors import FetchError

Index = dict[int, list[Path]]


def folders(environment: Mapping[str, str]) -> list[Path]:
    """The folders that PIH_MIRROR names, separated by ':'; raises FetchError for one that is not there."""
    found = [Path(entry).absolute() for entry in environment.get("PIH_MIRROR", "").split(os.pathsep) if entry]
    for folder in found:
        if not folder.is_dir():
            raise FetchError("PIH_MIRROR names a folder that is not there", where=str(folder), fix="correct PIH_MIRROR")
    return found


def index(roots: Iterable[Path]) -> Index:
    """All files below the folders, by size."""
    sizes: Index = {}
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                path = Path(folder, name)
                if path.is_file():
                    sizes.setdefault(path.stat().st_size, []).append(path)
    return sizes


def find(candidates: Index, digest: str, size: int) -> Path | None:
    """The file with this digest."""
    return next((path for path in candidates.get(size, ()) if measure(path) == (digest, size)), None)
