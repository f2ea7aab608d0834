"""A step's inputs as the runner declares them: SPEC.json."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})


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
