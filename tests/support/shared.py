"""What the processes that run tests side by side share: one of them makes it, the others wait and find it made."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """One process at a time has a place: who enters looks whether it is made, and else makes it."""
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
