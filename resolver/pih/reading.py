"""Reading small files that may not be what they are taken for: plain files alone, and no more of them than allowed."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from pih.toml_lines import too_deep
from pih_runtime.numbers import whole


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
    """What the JSON says; raises ValueError for all that it cannot be: nested too deeply, a key that stands twice.

    As other readers have it: UTF-8 alone, without a byte order mark, and no NaN.
    """
    text = data if isinstance(data, str) else data.decode()
    try:
        return json.loads(text, object_pairs_hook=_table, parse_int=whole, parse_constant=_no_number)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def toml_of(text: str) -> dict[str, Any]:
    """What the TOML says; raises TOMLDecodeError with the line, and ValueError for what is TOML, but not to be read."""
    try:
        if too_deep(text):
            raise RecursionError
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as problem:
        raise ValueError("a number of thousands of digits is too long") from problem
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two values they take; so neither is."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:100]!r} stands twice in one table")
    return table


def said(problem: Exception) -> str:
    """What was wrong, in words for people: of the system's errors without their number and the path again."""
    return problem.strerror or "it cannot be read" if isinstance(problem, OSError) else str(problem)
