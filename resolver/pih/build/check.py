"""`pih build --check`: every step a second time, in a store of its own; which ones gave other bytes, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from pih.build.compare import Difference, first_difference
from pih.build.embedded import Result
from pih.build.store import Store, open_store


@attrs.frozen
class Finding:
    """A step that is not what it was. inherited: one of its own inputs differed already."""

    step: str
    difference: Difference
    inherited: bool


def again(
    first: Result, store: Store, inputs: dict[str, tuple[str, ...]], build: Callable[[Store], Result]
) -> list[Finding]:
    """Build once more from the same artifacts and compare, step by step. inputs: step → the steps it takes."""
    with store.workspace() as work:
        second = build(_beside(store, work))
        findings: dict[str, Finding] = {}
        outputs = {step.id: step for step in second.steps}
        for step in first.steps:
            if outputs[step.id].digest == step.digest:
                continue
            difference = first_difference(step.output, outputs[step.id].output)
            if difference is None:
                difference = Difference("", -1, "the modes of its files")
            inherited = any(name in findings for name in inputs[step.id])
            findings[step.id] = Finding(step.id, difference, inherited)
        return list(findings.values())


def _beside(store: Store, work: Path) -> Store:
    """An empty store with the same artifacts."""
    root = work / "store"
    root.mkdir()
    (root / "sha256").symlink_to(store.root / "sha256")
    return open_store(root)
