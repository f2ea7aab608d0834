"""Writing files of an archive below a folder, whatever the archive says.

Archives come checked by digest, and are taken as hostile all the same: every path stays
below the root, and nothing is written through a symbolic link that came before.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from pathlib import Path
from typing import IO

# Bounds on a path in bytes and folders: what the system takes below any root, and far more than software needs.
_LONGEST_PART, _LONGEST, _DEEPEST = 255, 1024, 100


class UnsafePathError(ValueError):
    """The archive asks for something outside its folder."""


def folder(root: Path, path: str) -> Path:
    """Make the folder `path` below root, with its parents."""
    here = root
    for part in _parts(path):
        here = here / part
        try:
            mode = here.lstat().st_mode
        except FileNotFoundError:
            here.mkdir()
            here.chmod(0o755)  # whatever the umask, and the folder above, would have it be
        else:
            if not stat.S_ISDIR(mode):
                raise UnsafePathError(f"{path!r} passes through {part!r}, which is not a folder")
    return here


def file(root: Path, path: str, content: IO[bytes], size: int, *, executable: bool) -> None:
    """Write `size` bytes as a file, in place of a file or link that was there."""
    target = _place(root, path)
    with target.open("xb") as writer:
        shutil.copyfileobj(content, writer, 1 << 20)
        if writer.tell() != size:
            raise UnsafePathError(f"{path!r} is cut short")
    target.chmod(0o755 if executable else 0o644)


def link(root: Path, path: str, target: str) -> None:
    """Make a symbolic link; an absolute target is meant from the root, and made relative to it."""
    relative = link_target(path, target)
    _place(root, path).symlink_to(relative)


def link_target(path: str, target: str) -> str:
    """A link's target, relative to the link; raises UnsafePathError where it leaves the root."""
    if not target or "\0" in target:
        raise UnsafePathError(f"link {path!r} leads nowhere")
    _bound(target, target.split("/"))
    parent = posixpath.dirname(posixpath.normpath(path))
    if target.startswith("/"):
        target = posixpath.relpath(posixpath.normpath(target).lstrip("/") or ".", parent or ".")
    if posixpath.normpath(posixpath.join(parent, target)).split("/")[0] == "..":
        raise UnsafePathError(f"link {path!r} to {target!r} leaves the root")
    return target


def _place(root: Path, path: str) -> Path:
    *parents, name = _parts(path) or [""]
    if not name:
        raise UnsafePathError("an entry has no name")
    target = folder(root, "/".join(parents)) / name
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif os.path.lexists(target):
        raise UnsafePathError(f"{path!r} takes the place of a folder")
    return target


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise UnsafePathError(f"path {path!r} leaves the root")
    _bound(path, parts)
    return parts


def _bound(path: str, parts: list[str]) -> None:
    try:
        sizes = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError:
        raise UnsafePathError(f"path {path!r} is no name of a file") from None
    if max(sizes, default=0) > _LONGEST_PART or sum(sizes) + len(sizes) > _LONGEST or len(sizes) > _DEEPEST:
        raise UnsafePathError(f"path {path[:80]!r}… is too long")
