"""Writing a mirror: every artifact that building some locks needs, and the wheels of the program itself.

The folder can be used as it is (PIH_MIRROR, PIP_FIND_LINKS); the archive is the same folder in one file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from pih.build import graph
from pih.build.placing import placed
from pih.build.progress import Listener, StepDone, StepStarted
from pih.build.store import Store, measure
from pih.carry import incoming, listing
from pih.carry.listing import Listing
from pih.lock import Artifact, Lock
from pih_runtime.errors import UsageError
from pih_steps import tar

ARCHIVE = ".tar"


@attrs.frozen
class Locked:
    """A lock, and the file it is in."""

    lock: Lock
    path: Path


def needed(locked: Locked, targets: Iterable[str]) -> list[Artifact]:
    """The artifacts, toolchains and interpreter for these steps of a lock, with any builder."""
    graph.check(locked.lock)
    steps = [step for target in targets for step in graph.closure(locked.lock.build.steps, target)]
    return graph.outside(locked.lock, steps)


def listed(
    locks: Sequence[Locked], artifacts: Sequence[Artifact], wheels: Sequence[Path], python: Sequence[str]
) -> Listing:
    """What the mirror of these is to say of itself."""
    unique = {artifact.sha256: artifact for artifact in sorted(artifacts, key=lambda item: (item.name, item.version))}
    digests = {path.name: measure(path) for path in wheels}
    return Listing(
        listing.SCHEMA,
        tuple(listing.LockRef(item.lock.profile.name, measure(item.path)[0]) for item in locks),
        tuple(listing.Artifact(a.name, a.version, a.sha256, a.size) for a in unique.values()),
        tuple(listing.Wheel(name, *digests[name]) for name in sorted(digests)),
        tuple(python) if wheels else (),
        tuple(_left_out(locks, unique, wheels)),
    )


def write(found: Listing, store: Store, wheels: Sequence[Path], output: Path, listener: Listener) -> None:
    """Write the mirror: one archive where the name ends in .tar, else a folder. It takes the place of a mirror only."""
    sources = {f"wheels/{path.name}": path for path in wheels}
    for item in found.artifacts:
        store.check(item.sha256, item.size)
        sources[f"sha256/{item.sha256}"] = store.path(item.sha256)
    listener(StepStarted(output.name))
    began = time.monotonic()
    with placed(output, _check) as made:
        if output.suffix == ARCHIVE:
            entries = [tar.Entry(name, path) for name, path in sources.items()]
            with made.open("wb") as stream:
                tar.write(stream, [tar.Entry(listing.NAME, listing.to_json(found)), *entries])
        else:
            made.mkdir()
            (made / listing.NAME).write_bytes(listing.to_json(found))
            for name, path in sources.items():
                (made / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, made / name)
    listener(StepDone(output.name, time.monotonic() - began, cached=False))


def _check(place: Path) -> None:
    """Raises UsageError unless nothing is there, an empty folder, or a mirror and nothing else."""
    archive = place.suffix == ARCHIVE
    empty = not archive and place.is_dir() and not any(place.iterdir())
    if not os.path.lexists(place) or empty:
        return
    if place.is_symlink() or place.is_dir() == archive or not incoming.is_mirror(place):
        what = "is a folder" if archive and place.is_dir() else "is there already, and is no mirror"
        raise UsageError(what, where=str(place), fix="name another place, or remove what is there")


def _left_out(locks: Sequence[Locked], carried: dict[str, Artifact], wheels: Sequence[Path]) -> Iterable[str]:
    """What somebody who builds from the mirror must have besides."""
    yield f"the source tree of pih, in the same state (its runtime: {_own()}), with the profiles and their locks"
    yield "Python 3.11 or newer with venv, of the host"
    if not wheels:
        yield "the Python packages of requirements/build.txt"
    for item in locks:
        name = item.lock.profile.name
        rest = [artifact for artifact in item.lock.artifacts if artifact.sha256 not in carried]
        for artifact in rest:
            size = f"{artifact.size / 1e6:.1f} MB"
            yield f"{artifact.name} ({size}), which packing the weights of {name} needs: --weights"
        for plugin in item.lock.plugins:
            if plugin.artifact:
                yield f"the place that {name} has plugin {plugin.id} from ({plugin.source}); its archive is carried"
    yield "Bazel and Nix, where they are to build"


def _own() -> str:
    """A short name for the state of this source tree, to compare by eye."""
    root = Path(__file__).resolve().parents[3]
    parts = [graph.digest_of(root / name) for name in graph.PROGRAM]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
