"""Reading small files that may not be what they are taken for: plain files alone, and no more of them than allowed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_at_most(path: Path, most: int) -> bytes:
    """The file's bytes; raises OSError as `open` does, ValueError where it is no plain file or larger than `most`."""
    if path.exists() and not path.is_file():  # a pipe would wait, a device would never end
        raise ValueError("not a plain file")
    with path.open("rb") as reader:
        if os.fstat(reader.fileno()).st_size <= most:
            raw = reader.read(most + 1)  # a file may grow while it is read, and some of the system's say no size
            if len(raw) <= most:
                return raw
    raise ValueError(f"more than {most} bytes are too many")


def json_of(data: str | bytes) -> Any:
    """What the JSON says; raises ValueError for all that it cannot be, also for what is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def said(problem: Exception) -> str:
    """What was wrong, in words for people: of the system's errors without their number and the path again."""
    return problem.strerror or "it cannot be read" if isinstance(problem, OSError) else str(problem)
