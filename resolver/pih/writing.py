"""Writing small files: a reader sees the old file or the new one, never a half."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Write beside, bring to the disk, rename; raises OSError as `open` does, and then leaves nothing."""
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as writer:
            writer.write(text)
            writer.flush()
            os.fsync(writer.fileno())
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink()
        raise
