"""A step's inputs as the runner declares them: SPEC.json. And what a source tree may hold."""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})
LOCK_TREE = "lock"  # among the trees: the lock itself
# A package of Bazel's ends where one lies: what is beside it or below is then in no glob of the package above.
_ENDS = ("BUILD", "BUILD.bazel")


@dataclass(frozen=True, slots=True)
class Spec:
    """params: plain values. artifacts, trees, steps: name → path. output: the file or directory to write."""

    params: dict[str, Any]
    artifacts: dict[str, Path]
    trees: dict[str, Path]
    steps: dict[str, Path]
    tools: tuple[Path, ...]
    output: Path


def load(path: Path) -> Spec:
    """Read SPEC.json; raises BuildError where it is not what a step expects."""
    try:
        data = json.loads(path.read_bytes())
        return Spec(
            params=dict(data["params"]),
            artifacts=_paths(data["artifacts"]),
            trees=_paths(data["trees"]),
            steps=_paths(data["steps"]),
            tools=tuple(Path(item) for item in data["tools"]),
            output=Path(data["output"]),
        )
    except OSError as problem:
        raise BuildError(f"cannot read the step's specification: {problem.strerror}", where=str(path)) from problem
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BuildError(
            f"not a step specification: {problem!r}",
            where=str(path),
            fix="it is one JSON object with params, artifacts, trees, steps, tools and output",
        ) from problem


def _paths(data: dict[str, str]) -> dict[str, Path]:
    return {name: Path(value) for name, value in sorted(data.items())}


def check_trees(spec: Spec, root: Path | None) -> None:
    """Raises BuildError as `check_tree` does. root: where the trees lie, if what the runner names are copies."""
    for name, path in spec.trees.items():
        if name != LOCK_TREE:
            check_tree(root or path.parents[name.count("/")], name)


def check_tree(root: Path, name: str) -> None:
    """Every builder sees the same of the tree `name` below `root`; raises BuildError that names what prevents it.

    A tree that is not there passes.
    """
    for path in _held(root, name):
        if problem := _problem(path):
            what, fix = problem
            raise BuildError(f"{str(path.relative_to(root))!r} {what}", where=str(root), fix=fix)


def _held(root: Path, name: str) -> Iterator[Path]:
    """The folders above the tree with what may end a package there, the tree, and all that is in it but caches."""
    path = root
    for part in name.split("/"):
        if path != root:
            yield from (path / end for end in _ENDS)
        path /= part
        yield path
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        if folder.is_dir():
            found = sorted(path for path in folder.iterdir() if path.name != "__pycache__")
            yield from found
            waiting += found


def _problem(path: Path) -> tuple[str, str] | None:
    """What is wrong with a file or folder of a source tree, and what to do; None where nothing is."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "is a link, and a source tree has none", "put a copy of what it points to in its place, or take it away"
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        return "is neither a file nor a folder", "take it away"
    if stat.S_ISREG(mode) and path.name in _ENDS:
        return "hides what lies beside it from Bazel", "take it away, or give it another name"
    if not path.name.isprintable() or {":", "\\"} & set(path.name):
        return "has a name that Bazel does not take", "use printable characters, and neither ':' nor '\\'"
    return None


def artifact(spec: Spec, name: str) -> Path:
    """An artifact that the step cannot do without."""
    return _declared(spec.artifacts, "artifact", name)


def tree(spec: Spec, name: str) -> Path:
    """A source tree that the step cannot do without."""
    return _declared(spec.trees, "tree", name)


def step(spec: Spec, name: str) -> Path:
    """The output of another step that this one cannot do without."""
    return _declared(spec.steps, "input from step", name)


def _declared(inputs: dict[str, Path], kind: str, name: str) -> Path:
    try:
        return inputs[name]
    except KeyError:
        raise BuildError(f"the step has no {kind} {name!r}", fix="write the lock again: pih lock") from None


def of_the_disk(problem: Exception) -> bool:
    """Whether an error says something of the disk, and nothing of the file that is being read."""
    return isinstance(problem, OSError) and problem.errno in _DISK


def param(spec: Spec, name: str) -> Any:
    """A parameter that the step cannot do without."""
    try:
        return spec.params[name]
    except KeyError:
        raise BuildError(f"the step has no parameter {name!r}", fix="write the lock again: pih lock") from None
