"""Where a check's result goes: a place that is known to be writable before the minutes that a check takes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pih_runtime.errors import UsageError, WorkerError


@contextmanager
def opened(path: Path | None) -> Iterator[Callable[[str], None]]:
    """What writes the result, to standard output for None; of a file a reader sees the whole or nothing.

    Raises UsageError where the file cannot be written; the writer, WorkerError, and then the result is printed.
    """
    if path is None:
        yield lambda text: print(text, end="")
        return
    try:
        if path.exists() and not path.is_file():
            raise FileExistsError("it is there already, and is no file")
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as problem:
        raise UsageError(
            f"cannot be written: {problem.strerror or problem}",
            where=str(path),
            fix="name a file in a folder that is there and yours: --output FILE.json",
        ) from problem
    beside = Path(name)

    def write(text: str) -> None:
        try:
            with os.fdopen(handle, "w", encoding="utf-8", closefd=False) as writer:
                writer.write(text)
                writer.flush()
                os.fsync(handle)
            beside.chmod(0o644)
            beside.replace(path)
        except OSError as problem:
            print(text, end="")  # it took minutes to find
            raise WorkerError(
                f"cannot be written after all: {problem.strerror}",
                where=str(path),
                fix="the result is printed instead: keep that",
            ) from problem

    try:
        yield write
    finally:
        os.close(handle)
        beside.unlink(missing_ok=True)
