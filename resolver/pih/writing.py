"""Writing small files: a reader sees the old file or the new one, never a half."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def replace(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write beside, bring to the disk, rename; raises OSError naming the file, and then leaves nothing."""
    replace_all({path: content}, mode)


def replace_all(contents: Mapping[Path, str | bytes], mode: int = 0o644) -> None:
    """The same for files that belong together: none is renamed before all are on the disk."""
    beside: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            with named(path):
                handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
                beside[path] = Path(name)
                with os.fdopen(handle, "wb") as writer:
                    writer.write(content.encode() if isinstance(content, str) else content)
                    writer.flush()
                    os.fsync(writer.fileno())
                beside[path].chmod(mode)
        for path, made in beside.items():
            with named(path):
                made.replace(path)
    except BaseException:
        for made in beside.values():
            made.unlink(missing_ok=True)
        raise


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An error of the system names the file that its user knows, not the one beside it."""
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from problem
