"""The weights file itself: opened once, mapped, and watched for as long as it is mapped.

A write to the file shows in the map at once, whoever made it; its size or time of change then moves, which is
noticed within INTERVAL. A writer who sets the time back, and a disk that gives other bytes later, are not noticed.
Replacing the file under its name changes nothing: the map keeps the old one.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

from pih_runtime.errors import SealError, WorkerError

INTERVAL = 5.0  # seconds


class MappedFile:
    """data: the whole file, read only by agreement: copy on write, for backends take the address of its bytes."""

    def __init__(self, path: Path, fix: str) -> None:
        """Map it; WorkerError with `fix` where that cannot be."""
        self._path = path
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._state = _state(self._descriptor)
            self.data = memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY))
        except (OSError, ValueError) as problem:  # ValueError: an empty file
            self._close()
            raise WorkerError(f"cannot map the weights: {problem}", where=str(path), fix=fix) from problem
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def check_unchanged(self) -> None:
        """SealError where the file is not as it was when it was mapped."""
        if _state(self._descriptor) != self._state:
            raise SealError(
                "the weights were changed while they are in use",
                where=str(self._path),
                fix="start the worker again, and replace weights by renaming a new file over the old one",
            )

    def watch(self, fail: Callable[[BaseException], None]) -> None:
        """Call `fail` once, from another thread, when the file changes."""

        def run() -> None:
            while not self._stopped.wait(INTERVAL):
                try:
                    self.check_unchanged()
                except (SealError, OSError) as problem:
                    fail(problem)
                    return

        self._watcher = threading.Thread(target=run, name="weights-watch", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Let go of the map; the kernel frees it with the last view that a backend still holds."""
        self._stopped.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        self.data.release()
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _state(descriptor: int) -> tuple[int, int]:
    """What a write cannot leave as it was. Not the change time, which a new link or another mode moves too."""
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns
