"""What differs between two locks of a profile, decision by decision, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from pih.inspect import overview
from pih.inspect.bundle import origin
from pih.inspect.overview import mib
from pih.lock import Artifact, Device, Lock, Plugin
from pih.structure import unstructure

_NO_DEVICE = Device(count=0, sm="", memory_bytes=0, driver="")
_SAME_KEY = {"memory_bytes": "memory"}
_PARTS = ("provides", "requires", "runtime", "abi")
_RELIED_ON = ("permissions", "licence")  # each of them has a line of its own

Line = Callable[[str, str], str]


@attrs.frozen
class Move:
    """A decision that changed. before: '' where it is new; after: '' where it is gone."""

    name: str
    before: str
    after: str
    why: str


def moves(before: Lock | None, after: Lock, line: Line, upgraded: frozenset[str]) -> tuple[Move, ...]:
    """Every move. line: the profile's line of a section's key. upgraded: names that were asked to move.

    Of a first lock, its plugins and artifacts.
    """
    found = [*_plugins(before, after, upgraded), *_artifacts(before, after, upgraded)]
    if before is not None:
        found = [*_asked(before, after, line), *found, *_followed(before, after)]
        if not found and before != after:
            changed = [field.name for field in attrs.fields(Lock) if _value(before, field) != _value(after, field)]
            found = [Move(name, "", "", "follows the source tree or the lines of the profile") for name in changed]
    return tuple(found)


def _value(lock: Lock, field: Any) -> Any:
    return getattr(lock, field.name)


def _asked(before: Lock, after: Lock, line: Line) -> Iterator[Move]:
    """What the profile itself says."""
    said = _sections(before)
    for section, values in _sections(after).items():
        for key, value in values.items():
            if said[section][key] != value:
                why = line(section, _SAME_KEY.get(key, key))
                yield Move(f"{section}.{key}", str(said[section][key]), str(value), why)
    for role in sorted((before.model.keys() | after.model.keys()) - {"plugin"}):
        old, new = (_source(lock, role) for lock in (before, after))
        if old != new:
            yield Move(f"model.{role}", old, new, line("model", role))


def _sections(lock: Lock) -> dict[str, dict[str, Any]]:
    """What a lock repeats of the profile, by the profile's section."""
    target = {key: value for key, value in unstructure(lock.target).items() if key != "device"}
    device = unstructure(lock.target.device or _NO_DEVICE)
    same = {name: unstructure(getattr(lock, name)) for name in ("limits", "service", "weights")}
    return {"target": target, "device": device, **same}


def _source(lock: Lock, role: str) -> str:
    """Where a file of the model comes from, '' where it has none of this role."""
    file = lock.model.get(role)
    return str(file.get("source", "")) if isinstance(file, dict) else ""


def _plugins(before: Lock | None, after: Lock, upgraded: frozenset[str]) -> Iterator[Move]:
    old = {plugin.id: plugin for plugin in before.plugins} if before else {}
    new = {plugin.id: plugin for plugin in after.plugins}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            yield _come_or_gone(name, was, now)
        elif was.version != now.version:
            why = "asked for by --upgrade" if name in upgraded else "the version that the profile and the catalog give"
            yield Move(name, was.version, now.version, why)
        else:
            other = [part for part in (*_PARTS, *_RELIED_ON) if getattr(was, part) != getattr(now, part)]
            said = [part for part in other if part in _PARTS]
            if said or (was.manifest != now.manifest and not other):
                why = f"its plugin.toml has other {', '.join(said) or 'constraints'}"
                yield Move(name, was.version, now.version, why)
        if now is not None and (was is not None or now.source != "workspace"):
            yield from _relied_on(was, now)


def _relied_on(was: Plugin | None, now: Plugin) -> Iterator[Move]:
    """What a user relies on in a plugin, whatever its version: whose it is, its licence, what it may reach.

    was: None for one from outside that is new.
    """
    if was is None or (was.source, was.trust) != (now.source, now.trust):
        yield Move(f"{now.id}: trust", was.trust if was else "", now.trust, origin(now) or "the source tree's own")
    if was is not None and was.licence != now.licence:
        yield Move(f"{now.id}: licence", was.licence, now.licence, "its plugin.toml says so")
    before, after = (overview.permissions(plugin) if plugin else () for plugin in (was, now))
    if before != after:
        more = ", ".join(item for item in after if item not in before)
        why = f"it now asks for {more}" if more else "it asks for less"
        yield Move(f"{now.id}: permissions", ", ".join(before), ", ".join(after), why)


def _artifacts(before: Lock | None, after: Lock, upgraded: frozenset[str]) -> Iterator[Move]:
    old = {(item.kind, item.name): item for item in before.artifacts} if before else {}
    new = {(item.kind, item.name): item for item in after.artifacts}
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if was is None or now is None:
            yield _come_or_gone(key[1], was, now)
        elif was.sha256 != now.sha256:
            old_version, new_version = was.version, now.version
            if old_version == new_version:
                old_version, new_version = (f"{item.version}, sha256:{item.sha256[:12]}" for item in (was, now))
            yield Move(key[1], old_version, new_version, _why_other(now, upgraded))


def _why_other(artifact: Artifact, upgraded: frozenset[str]) -> str:
    if artifact.name in upgraded:
        return "asked for by --upgrade"
    return "the plugin's files changed" if artifact.kind == "plugin" else artifact.reasons[0]


def _come_or_gone(name: str, was: Plugin | Artifact | None, now: Plugin | Artifact | None) -> Move:
    if now is not None:
        return Move(name, "", now.version, min(now.reasons, key=len, default=""))
    assert was is not None
    return Move(name, was.version, "", "nothing asks for it any more")


def _followed(before: Lock, after: Lock) -> Iterator[Move]:
    """What follows from other moves: the plan, its kernels, the memory."""
    if before.plan != after.plan:
        calls = [f"{lock.plan.calls} calls, sha256:{lock.plan.sha256[:12]}" for lock in (before, after)]
        yield Move("plan", calls[0], calls[1], "the model, its limits, a model plugin or the kernels' report changed")
    old, new = ({binding.symbol for binding in lock.bindings} for lock in (before, after))
    if old != new:
        why = f"{len(new - old)} come, {len(old - new)} go: the plan calls others"
        yield Move("kernels", str(len(old)), str(len(new)), why)
    slow = [overview.fallbacks(lock) for lock in (before, after)]
    if slow[0] != slow[1]:
        yield Move("fallbacks", "; ".join(slow[0]), "; ".join(slow[1]), "as the profile's [kernels] allows")
    if parts := [
        f"{name} {mib(getattr(after.budget, name) - getattr(before.budget, name))}"
        for name in ("weights", "kv", "activations", "spill", "host")
        if getattr(after.budget, name) != getattr(before.budget, name)
    ]:
        was, now = (mib(lock.budget.total + lock.budget.device) for lock in (before, after))
        yield Move("memory", was, now, f"difference: {', '.join(parts)}")
