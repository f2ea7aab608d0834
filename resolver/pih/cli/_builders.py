"""The builders by name, each as one function of a deployment; and comparing what several of them give."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from pih.build.compare import Difference, first_difference
from pih.build.progress import Listener, renderer
from pih.bundle import layout as layouts
from pih.cli._workspace import IMAGE, SOURCE_ROOT, Deployment, deployment, store


@attrs.frozen
class Built:
    """A finished build. ran: what was not in a cache."""

    output: Path
    ran: tuple[str, ...]


@attrs.frozen
class Run:
    """One builder's part in a comparison. skipped: why it did not build; difference: from the first that did."""

    builder: str
    skipped: str
    digest: str
    seconds: float
    ran: int
    difference: Difference | None


Builder = Callable[..., Built]


def embedded(found: Deployment, *, target: str, offline: bool, jobs: int, listener: Listener) -> Built:
    """The default: needs Python alone."""
    from pih.build import embedded as builder

    result = builder.build(
        found.lock,
        found.lock_path,
        SOURCE_ROOT,
        store(),
        target=target,
        jobs=jobs or os.cpu_count() or 1,
        offline=offline,
        environment=os.environ,
        listener=listener,
    )
    return Built(result.output, tuple(step.id for step in result.steps if not step.cached))


def nix(found: Deployment, *, target: str, offline: bool, jobs: int, listener: Listener) -> Built:  # noqa: ARG001 - Nix's own setting counts
    """The user's Nix, with the user's configuration."""
    from pih.build import nix as builder

    result = builder.build(
        found.lock,
        found.lock_path,
        SOURCE_ROOT,
        store(),
        target=target,
        offline=offline,
        environment=os.environ,
        listener=listener,
    )
    return Built(result.output, result.ran)


def bazel(found: Deployment, *, target: str, offline: bool, jobs: int, listener: Listener) -> Built:
    """The user's Bazel, on this source tree."""
    from pih.build import bazel as builder

    result = builder.build(
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
    return Built(result.output, result.ran)


BUILDERS: dict[str, Builder] = {"embedded": embedded, "bazel": bazel, "nix": nix}
_PROGRAMS = {"embedded": "", "bazel": "bazel", "nix": "nix-build"}


def compare(found: Deployment, *, target: str, offline: bool, jobs: int, listener: Listener) -> list[Run]:
    """Build with every builder of this host, in turn; one that is not here is skipped, and says so."""
    runs: list[Run] = []
    first: Path | None = None
    for name, builder in BUILDERS.items():
        program = _PROGRAMS[name]
        if program and shutil.which(program) is None:
            runs.append(Run(name, f"{program} is not installed", "", 0.0, 0, None))
            continue
        started = time.monotonic()
        result = builder(found, target=target, offline=offline, jobs=jobs, listener=listener)
        seconds = time.monotonic() - started
        difference = first_difference(first, result.output) if first else None
        first = first or result.output
        runs.append(Run(name, "", layouts.read(result.output).digest, seconds, len(result.ran), difference))
    return runs


def build_profile(
    profile_path: Path, *, offline: bool, target: str = IMAGE, jobs: int = 0, builder: str = "embedded"
) -> tuple[Deployment, Built]:
    """Lock where there is no lock yet, then build, showing progress on stderr. jobs 0: one for each CPU."""
    with renderer() as listener:
        found = deployment(profile_path, offline=offline, listener=listener)
        return found, BUILDERS[builder](found, target=target, offline=offline, jobs=jobs, listener=listener)
