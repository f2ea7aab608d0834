"""Reading small files that may not be what they are taken for: plain files alone, and no more of them than allowed."""

from __future__ import annotations

from pathlib import Path


def read_at_most(path: Path, most: int) -> bytes:
    """The file's bytes; raises OSError as `open` does, ValueError where it is no plain file or larger than `most`."""
    if path.exists() and not path.is_file():  # a pipe would wait, a device would never end
        raise ValueError("not a plain file")
    with path.open("rb") as reader:
        raw = reader.read(most + 1)
    if len(raw) > most:
        raise ValueError(f"more than {most} bytes are too many")
    return raw
