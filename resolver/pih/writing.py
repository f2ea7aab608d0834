"""Writing small files: a reader sees the old file or the new one, never a half."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def replace(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Write beside, bring to the disk, rename; raises OSError naming the file, and then leaves nothing.

    A link stays one, to another content; what is no plain file stays what it is. mode: None for that of the file that
    is there, of a new one what the user's umask leaves.
    """
    replace_all({path: content}, mode)


def replace_all(contents: Mapping[Path, str | bytes], mode: int | None = None) -> None:
    """The same for files that belong together: none is renamed before all are on the disk."""
    beside: dict[Path, tuple[Path, Path]] = {}
    try:
        for path, content in contents.items():
            with named(path):
                target = Path(os.path.realpath(path))
                before = _mode(target)
                made = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
                handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
                beside[path] = made, target
                with os.fdopen(handle, "wb") as writer:
                    writer.write(content.encode() if isinstance(content, str) else content)
                    writer.flush()
                    os.fsync(writer.fileno())
                    wanted = before if mode is None else mode
                    if wanted is not None:
                        os.fchmod(writer.fileno(), wanted)
        for path, (made, target) in beside.items():
            with named(path):
                made.replace(target)
    except BaseException:
        for made, _ in beside.values():
            made.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int | None:
    """Permissions of the file that is there, None where there is none; raises OSError for anything else."""
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found):
        raise FileExistsError(errno.EEXIST, "is there already, and is no plain file")
    return stat.S_IMODE(found)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An error of the system names the file that its user knows, not the one beside it."""
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from problem
