"""Two outputs that should be the same bytes: where they differ first.

Modes do not count: Bazel makes every output executable, and a layout's files carry none.
"""

from __future__ import annotations

from pathlib import Path

import attrs

_CHUNK = 1 << 20


@attrs.frozen
class Difference:
    """path: in the output, '' for the output itself. offset: the first differing byte; -1 where it is no content."""

    path: str
    offset: int
    what: str


def first_difference(one: Path, other: Path) -> Difference | None:
    """The first difference of two files or folders, in the order of their names; None where they are alike."""
    for name in sorted(_entries(one) | _entries(other)):
        found = _compare(one / name if name else one, other / name if name else other)
        if found is not None:
            what, offset = found
            return Difference(name, offset, what)
    return None


def _entries(root: Path) -> set[str]:
    if not root.is_dir() or root.is_symlink():
        return {""}
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def _compare(one: Path, other: Path) -> tuple[str, int] | None:
    kinds = [_kind(path) for path in (one, other)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} against {kinds[1]}", -1
    if kinds[0] == "link":
        targets = [path.readlink() for path in (one, other)]
        return None if targets[0] == targets[1] else (f"link to {targets[0]} against {targets[1]}", -1)
    if kinds[0] == "folder":
        return None
    offset = _offset(one, other)
    if offset is None:
        return None
    sizes = [path.stat().st_size for path in (one, other)]
    return f"{sizes[0]} bytes against {sizes[1]}", offset


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "link"
    if path.is_dir():
        return "folder"
    return "file" if path.exists() else "nothing"


def _offset(one: Path, other: Path) -> int | None:
    """The first byte in which two files differ; where one ends early, its length."""
    at = 0
    with one.open("rb") as left, other.open("rb") as right:
        while True:
            chunks = left.read(_CHUNK), right.read(_CHUNK)
            if chunks[0] != chunks[1]:
                pairs = enumerate(zip(*chunks, strict=False))
                return at + next((index for index, (a, b) in pairs if a != b), min(map(len, chunks)))
            if not chunks[0]:
                return None
            at += len(chunks[0])
