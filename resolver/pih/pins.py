"""Pins: the artifacts that this release of PIH was made and tested with, in plugins/pins.json.

A new lock takes these, so that `pih lock` needs no network and two users get the same lock; `--upgrade` asks the
user's own registries for newer ones through the functions that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from pih.lock import Artifact, Seed
from pih.names import normalized
from pih.reading import json_of
from pih.structure import StructureError, dotted, nearest, structure
from pih_runtime.errors import LockError, UsageError

SCHEMA = 1
ALL = "*"  # no name of anything; an empty name is what an unset variable of a script leaves


@attrs.frozen
class Pins:
    """Known-good artifacts by name, without reasons: those belong to a lock. seed: made from the .deb among them."""

    schema: int
    seed: Seed
    artifacts: tuple[Artifact, ...]

    def find(self, kind: str, name: str) -> Artifact | None:
        """The pin of this kind and name."""
        wanted = normalized(name) if kind == "wheel" else name
        return next((pin for pin in self.artifacts if (pin.kind, pin.name) == (kind, wanted)), None)


@attrs.frozen
class Move:
    """What an upgrade changed: '' where there was none before."""

    name: str
    before: str
    after: str


def load(root: Path) -> Pins:
    """Read plugins/pins.json of the source tree."""
    path = root / "plugins" / "pins.json"
    fix = "restore plugins/pins.json from the release"
    try:
        pins = structure(json_of(path.read_bytes()), Pins)
    except OSError as problem:
        raise LockError(f"cannot read the pins: {problem.strerror}", where=str(path), fix=fix) from problem
    except StructureError as failure:
        first = failure.problems[0]
        raise LockError(f"{dotted(first.path)}: {first.what}", where=str(path), fix=fix) from failure
    except ValueError as problem:
        raise LockError(f"not JSON: {problem}", where=str(path), fix=fix) from problem
    if pins.schema != SCHEMA:
        raise LockError(f"pins schema {pins.schema} is not {SCHEMA}", where=str(path), fix=fix)
    return pins


def chosen(pins: Pins, what: str) -> tuple[Artifact, ...]:
    """What `--upgrade WHAT` moves: ALL that a registry serves, 'base' the .debs, else the one of that name."""
    if what == ALL:
        return tuple(pin for pin in pins.artifacts if pin.kind in ("deb", "wheel", "npm"))
    if what == "base":
        return tuple(pin for pin in pins.artifacts if pin.kind == "deb")
    found = tuple(pin for pin in pins.artifacts if pin.name in (what, normalized(what)))
    if not found:
        near = nearest(what, [pin.name for pin in pins.artifacts])
        meant = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"no artifact is called {what!r}", fix=f"{meant}give base or the name of an artifact in the lock"
        )
    return found


def upgrade(
    pins: Pins, moving: Iterable[Artifact], pin: Callable[[str, tuple[str, ...]], Iterable[Artifact]]
) -> tuple[Pins, tuple[Move, ...]]:
    """`pins` with `moving` pinned anew; `pin(kind, names)` asks the user's registry. Also what moved."""
    names: dict[str, list[str]] = {}
    for artifact in moving:
        names.setdefault(artifact.kind, []).append(artifact.name)
    fresh = {(new.kind, new.name): new for kind, listed in names.items() for new in pin(kind, tuple(listed))}
    old = {(artifact.kind, artifact.name): artifact for artifact in pins.artifacts}
    moves = tuple(
        Move(name=new.name, before=old[key].version if key in old else "", after=new.version)
        for key, new in sorted(fresh.items())
        if key not in old or old[key].sha256 != new.sha256
    )
    merged = old | {key: _as_pin(new, old.get(key)) for key, new in fresh.items()}
    return attrs.evolve(pins, artifacts=tuple(merged[key] for key in sorted(merged))), moves


def _as_pin(new: Artifact, old: Artifact | None) -> Artifact:
    """Without reasons, and with the licence that was known where the file is the same or the registry says none."""
    if old is not None and (new.licence == "NOASSERTION" or new.sha256 == old.sha256):
        return attrs.evolve(new, reasons=(), licence=old.licence)
    return attrs.evolve(new, reasons=())
