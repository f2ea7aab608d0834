"""The builders by name, and comparing what several of them give."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

from pih.build.compare import Difference, first_difference
from pih.build.progress import Listener, renderer
from pih.bundle import layout as layouts
from pih.cli._workspace import IMAGE, SOURCE_ROOT, Deployment, deployment, own, store

if TYPE_CHECKING:
    from pih.build import check
    from pih.build.store import Store


class Built(Protocol):
    """A finished build. ran: what was not in a cache."""

    @property
    def output(self) -> Path: ...

    @property
    def ran(self) -> tuple[str, ...]: ...


@attrs.frozen
class Run:
    """One builder's part in a comparison. skipped: why it was not run; difference: from the first that did build.

    layout: where its image lies, '' without one.
    """

    builder: str
    skipped: str = ""
    failed: Exception | None = None
    digest: str = ""
    seconds: float = 0.0
    ran: int = 0
    layout: str = ""
    difference: Difference | None = None


# Each is a module of `pih.build` with a function `build`, and the program that it runs, '' for none.
BUILDERS = {"embedded": "", "bazel": "bazel", "nix": "nix-build"}


def build(found: Deployment, builder: str, target: str, *, offline: bool, jobs: int, listener: Listener) -> Built:
    """The step `target` of the deployment's lock, by a builder of this name. jobs 0: as the builder sees fit."""
    result: Built = importlib.import_module(f"pih.build.{builder}").build(
        found.lock,
        found.lock_path,
        SOURCE_ROOT,
        store(),
        target=target,
        jobs=jobs,
        offline=offline,
        environment=os.environ,
        listener=listener,
    )
    return result


def compare(found: Deployment, *, target: str, offline: bool, jobs: int, listener: Listener) -> list[Run]:
    """Build with every builder of this host, in turn: one that is not here is skipped, one that fails stops none.

    What failed may be any exception: it is for the caller to raise, once the others have been told of.
    """
    runs: list[Run] = []
    first: Path | None = None
    for name, program in BUILDERS.items():
        if program and shutil.which(program) is None:
            runs.append(Run(name, skipped=f"{program} is not installed"))
            continue
        started = time.monotonic()
        try:
            result = build(found, name, target, offline=offline, jobs=jobs, listener=listener)
            seconds = time.monotonic() - started
            with own(result.output):
                digest = layouts.read(result.output).digest
            difference = first_difference(first, result.output) if first else None
        except Exception as problem:  # noqa: BLE001 - a defect in one builder's part is no reason to hide the others'
            runs.append(Run(name, failed=problem))
            continue
        first = first or result.output
        done = Run(name, digest=digest, seconds=seconds, ran=len(result.ran), layout=str(result.output))
        runs.append(attrs.evolve(done, difference=difference))
    return runs


def twice(
    found: Deployment, target: str, *, offline: bool, jobs: int, listener: Listener
) -> tuple[int, list[check.Finding]]:
    """Every step that `target` is made from, run twice by the embedded builder: their number, and what differed."""
    from pih.build import check, embedded, graph

    def again(shelf: Store) -> embedded.Result:
        return embedded.build(
            found.lock,
            found.lock_path,
            SOURCE_ROOT,
            shelf,
            target=target,
            jobs=jobs,
            offline=offline,
            environment=os.environ,
            listener=listener,
        )

    steps = graph.closure(found.lock.build.steps, target)
    findings = check.again(again(store()), store(), {step.id: step.steps for step in steps}, again)
    return len(steps), findings


def build_profile(
    profile_path: Path, *, offline: bool, target: str = IMAGE, jobs: int = 0, builder: str = "embedded"
) -> tuple[Deployment, Built]:
    """Lock where there is no lock yet, then build, showing progress on stderr. jobs 0: one for each CPU."""
    with renderer() as listener:
        found = deployment(profile_path, offline=offline, listener=listener)
        return found, build(found, builder, target, offline=offline, jobs=jobs, listener=listener)
