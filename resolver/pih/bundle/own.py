"""What the store itself made and holds: where that turns out to be damaged, it is not its user's to mend.

A lookup in the store compares stamps, so that bits which rot in place are found later, by whoever reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pih.build import made
from pih.build.progress import Listener
from pih.build.store import Place, Store
from pih_runtime.errors import SealError

_NAMES: dict[Place, str] = {"steps": "the image", "images": "what was read of an image"}


@contextmanager
def dropped_if_damaged(layout: Path, store: Store, listener: Listener) -> Iterator[None]:
    """Where a layout is the store's own, and the block finds it damaged: drop it, since the next run makes it again."""
    try:
        yield
    except SealError as problem:
        for kind, name in _NAMES.items():
            ours = layout.name == "output" and layout.parent.parent == store.place(kind, "")
            if ours and not made.intact(store, kind, layout.parent.name, name=name, listener=listener):
                problem.fix = f"run this again: {name} was damaged in the store, is removed, and will be made again"
        raise
