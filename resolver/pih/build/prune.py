"""Taking away what was made from artifacts and nobody has used for a while: it can be made again.

Artifacts stay: they came from elsewhere, and a host without a network could not bring them back.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import get_args

import attrs

from pih.build import made, tree
from pih.build.store import Place, Store


@attrs.frozen
class Entry:
    """An entry of the store. name: what made it. nbytes: on the disk. used: the last time, in seconds since 1970."""

    kind: Place
    key: str
    name: str
    nbytes: int
    used: float


def unused(store: Store, since: float) -> list[Entry]:
    """What was made, and not used since that time; the longest unused first."""
    found = []
    for kind in get_args(Place):
        with os.scandir(store.root / kind) as places:
            for place in (place for place in places if place.is_dir(follow_symlinks=False)):
                with suppress(FileNotFoundError):  # another process was faster
                    if (used := place.stat().st_mtime) < since:
                        name = made.name_of(Path(place.path)) or kind
                        found.append(Entry(kind, place.name, name, _on_disk(Path(place.path)), used))
    return sorted(found, key=lambda entry: (entry.used, entry.key))


def remove(store: Store, entry: Entry) -> bool:
    """Take it away, unless a worker runs from it or it was used meanwhile: whether it is gone.

    Raises WorkerError as `Store.workspace` does.
    """
    place = store.place(entry.kind, entry.key)
    with store.workspace() as work, suppress(FileNotFoundError, BlockingIOError):
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_mtime <= entry.used:
                place.rename(work / "unused")
                return True
        finally:
            os.close(handle)
    return False


def _on_disk(place: Path) -> int:
    """Bytes that go with the entry: a file that has another name elsewhere stays there."""
    statuses = [item.stat(follow_symlinks=False) for item in tree.below(place)]
    return 512 * sum(status.st_blocks for status in statuses if status.st_nlink == 1)
