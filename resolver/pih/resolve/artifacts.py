"""Which artifacts a deployment needs, and why: the base userland, wheels, tools, the model's files.

A locked artifact that is still needed stays; a new one is the release's pin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from pih.catalog import Manifest
from pih.lock import Artifact, Seed
from pih.names import normalized
from pih.pins import Pins
from pih.resolve.explain import ARROW
from pih.resolve.model import ModelFile
from pih.structure import nearest
from pih_runtime.errors import ResolutionError
from pih_steps.seed import archive

# The pinned Python and the libraries that it or a wheel may load: userland of the image, interpreter of every step.
BASE = (
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
)
SEED, SEED_MEMBER = "busybox-static", "bin/busybox"
TOOLS = ("numpy",)


@attrs.frozen
class Wanted:
    """An artifact that something needs, with the chain that says why."""

    kind: str
    name: str
    reason: str


def wanted_by_target(reason: str) -> tuple[Wanted, ...]:
    """The base userland, and the seed. reason: the profile's line that names the operating system."""
    base = "base userland: the Python that runs the worker and every build step"
    seed = "seed: what Bazel and Nix unpack the base userland with; no part of the image"
    return (
        *(Wanted("deb", name, f"{reason}{ARROW}{base}") for name in BASE),
        Wanted("deb", SEED, f"{reason}{ARROW}{seed}"),
    )


def wanted_by_plugins(plugins: Iterable[tuple[Manifest, tuple[str, ...]]]) -> tuple[Wanted, ...]:
    """The wheels that plugins import, and the compiler of a kernel pack that is built from source."""
    wanted = []
    for plugin, reasons in plugins:
        why = f"{reasons[0]}{ARROW}{plugin.id}"
        if plugin.runtime is not None:
            wanted += [Wanted("wheel", normalized(name), f"{why} imports it") for name in plugin.runtime.wheels]
        if plugin.kind == "kernels":
            wanted.append(Wanted("wheel", plugin.report.compiler, f"{why} is compiled by it"))
    return tuple(wanted)


def wanted_by_lowering(reason: str) -> tuple[Wanted, ...]:
    """Tools that read and pack weights. reason: the profile's line that names the weights."""
    return tuple(Wanted("wheel", name, f"{reason}{ARROW}its weights are packed with it") for name in TOOLS)


def choose(
    wanted: Iterable[Wanted], files: Iterable[ModelFile], pins: Pins, previous: tuple[Artifact, ...]
) -> tuple[Artifact, ...]:
    """One artifact for each name, with all its reasons, sorted by kind and name."""
    held = {(artifact.kind, artifact.name): artifact for artifact in previous}
    chosen: dict[tuple[str, str], Artifact] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for file in files:
        if file.artifact is not None:
            key = (file.artifact.kind, file.artifact.name)
            chosen[key] = file.artifact
            reasons.setdefault(key, []).append(file.reason)
    for want in wanted:
        key = (want.kind, want.name)
        if key not in chosen:
            found = held.get(key) or pins.find(want.kind, want.name)
            if found is None:
                raise _unpinned(want, pins)
            chosen[key] = found
        reasons.setdefault(key, []).append(want.reason)
    return tuple(attrs.evolve(chosen[key], reasons=tuple(dict.fromkeys(reasons[key]))) for key in sorted(chosen))


def seed_of(chosen: Iterable[Artifact], pins: Pins, fetch: Callable[[Artifact], Path]) -> Seed:
    """The seed that the chosen package gives; one that is not this release's is fetched to be read."""
    package = next(artifact for artifact in chosen if (artifact.kind, artifact.name) == ("deb", SEED))
    known = pins.find("deb", SEED)
    if known is not None and known.sha256 == package.sha256:
        return pins.seed
    made = archive(fetch(package), SEED_MEMBER)
    return Seed(deb=SEED, member=SEED_MEMBER, sha256=hashlib.sha256(made).hexdigest(), size=len(made))


def _unpinned(want: Wanted, pins: Pins) -> ResolutionError:
    near = nearest(want.name, [pin.name for pin in pins.artifacts if pin.kind == want.kind])
    meant = f"did you mean {near}? " if near else ""
    return ResolutionError(
        f"Because {want.reason},\n  and {want.name} is not among this release's pinned artifacts.\n"
        f"  So no version of {want.name} is known to work.",
        fix=f"{meant}add it to plugins/pins.json, or choose a plugin that does without it",
    )
