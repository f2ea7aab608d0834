"""The solver: which plugins serve the capabilities that a deployment needs.

A complete search in a fixed order: needs as they arise, candidates by preference, then highest version, then id; the
catalog's order does not matter. One plugin serves a capability in a deployment, since the worker knows a provider by
its capability alone. What is not needed is not chosen. A dead end teaches the search which of the chosen plugins are
to blame: it goes back to the last of those, and never again looks for the same need beside the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Literal

import attrs
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pih.catalog import Manifest

Cause = Literal[
    "other", "version", "target", "abi", "yanked", "unwanted", "taken", "conflict", "excluded", "optional", "listen"
]
Key = tuple[str, str]  # of a plugin: id and version
Served = tuple[tuple["Need", Manifest], ...]


@attrs.frozen
class Need:
    """A capability that must be served. by: the plugin that requires it, '' for the profile's own.

    plugin: the only id that will do, '' for any. reason: the profile's line, for its own needs.
    """

    capability: str
    specifier: str
    by: str = ""
    plugin: str = ""
    reason: str = ""


@attrs.frozen
class Misfit:
    """Why a plugin is out whatever else is chosen."""

    cause: Cause
    detail: str


@attrs.frozen
class Refusal:
    """Why a plugin that gives the capability cannot serve the need. other: the chosen plugin that stands against it."""

    plugin: Manifest
    cause: Cause
    detail: str
    other: Manifest | None = None


@attrs.frozen
class DeadEnd:
    """A need that nothing could serve, given the plugins chosen before it and how they were needed.

    later: the next dead ends of the search, for other choices.
    """

    need: Need
    refusals: tuple[Refusal, ...]
    served: Served
    later: tuple[DeadEnd, ...] = ()


@attrs.frozen
class Solution:
    """served: every need with its plugin, in the order of the search."""

    plugins: tuple[Manifest, ...]
    served: Served


_TOLD = 8  # dead ends that an explanation may draw on


@attrs.define
class _Frame:
    """A need on the path, and where its search stands. fresh: whether `plugin` was chosen for this very need."""

    need: Need
    rest: tuple[Need, ...]
    candidates: Iterator[Manifest]
    refusals: list[Refusal]
    blame: set[Key]
    plugin: Manifest | None = None
    fresh: bool = False


def solve(
    roots: Iterable[Need],
    candidates: Iterable[Manifest],
    misfit: Callable[[Manifest], Misfit | None],
    rank: Callable[[Manifest], int] = lambda _: 0,
) -> Solution | DeadEnd:
    """The plugins for `roots`, or the first dead end of the most preferred path.

    misfit: why a plugin is out whatever else is chosen. rank: preference between plugins, the lowest first.
    """
    return _Search(candidates, misfit, rank).run(tuple(roots))


class _Search:
    def __init__(
        self,
        candidates: Iterable[Manifest],
        misfit: Callable[[Manifest], Misfit | None],
        rank: Callable[[Manifest], int],
    ) -> None:
        ordered = sorted(candidates, key=lambda plugin: (plugin.id, plugin.version))
        ordered.sort(key=lambda plugin: Version(plugin.version), reverse=True)
        ordered.sort(key=rank)
        self.providers: dict[str, list[Manifest]] = {}
        for plugin in ordered:
            for capability in plugin.provides:
                self.providers.setdefault(capability, []).append(plugin)
        self.misfit = misfit
        self.misfits: dict[Key, Misfit | None] = {}
        self.frames: list[_Frame] = []
        self.chosen: dict[str, Manifest] = {}
        self.serving: dict[str, Manifest] = {}
        self.present: set[Key] = set()
        self.hopeless: dict[tuple[str, str, str], list[frozenset[Key]]] = {}
        self.ends: list[DeadEnd] = []

    def run(self, roots: tuple[Need, ...]) -> Solution | DeadEnd:
        needs = roots
        while needs:
            self.frames.append(_Frame(needs[0], needs[1:], self._candidates(needs[0]), [], set()))
            while not self._advance(self.frames[-1]):
                if not self._back():
                    return attrs.evolve(self.ends[0], later=tuple(self.ends[1:]))
            last = self.frames[-1]
            assert last.plugin is not None
            needs = (*last.rest, *(needs_of(last.plugin) if last.fresh else ()))
        return Solution(tuple(self.chosen[name] for name in sorted(self.chosen)), self._served())

    def _candidates(self, need: Need) -> Iterator[Manifest]:
        return iter(self.providers.get(need.capability, ()))

    def _served(self) -> Served:
        return tuple((frame.need, frame.plugin) for frame in self.frames if frame.plugin is not None)

    def _advance(self, frame: _Frame) -> bool:
        """Choose the frame's next candidate that nothing speaks against; False where there is none."""
        for plugin in frame.candidates:
            if (known := self._known(plugin)) is not None:
                frame.blame |= known - {key_of(plugin)}
                continue
            refusal = self._refusal(plugin, frame.need)
            if refusal is not None:
                if len(self.ends) < _TOLD:
                    frame.refusals.append(refusal)
                if refusal.other is not None:
                    frame.blame.add(key_of(refusal.other))
                continue
            frame.plugin, frame.fresh = plugin, plugin.id not in self.chosen
            if frame.fresh:
                self.chosen[plugin.id] = plugin
                self.present.add(key_of(plugin))
                self.serving |= dict.fromkeys(plugin.provides, plugin)
            return True
        return False

    def _back(self) -> bool:
        """Leave a dead end for the last choice that is to blame; False where none is."""
        end = self.frames.pop()
        if len(self.ends) < _TOLD:
            self.ends.append(DeadEnd(end.need, tuple(end.refusals), self._served()))
        self.hopeless.setdefault(_form(end.need), []).append(frozenset(end.blame))
        blame = end.blame | ({key_of(self.chosen[end.need.by])} if end.need.by else set())
        while self.frames:
            frame = self.frames[-1]
            plugin = frame.plugin
            assert plugin is not None
            frame.plugin = None
            if frame.fresh:
                del self.chosen[plugin.id]
                self.present.discard(key_of(plugin))
                for capability in plugin.provides:
                    del self.serving[capability]
                if key_of(plugin) in blame:
                    frame.blame |= blame - {key_of(plugin)}
                    return True
            self.frames.pop()
        return False

    def _known(self, plugin: Manifest) -> frozenset[Key] | None:
        """Plugins beside which one of its needs is known to be hopeless; None where there are none.

        Not before the first dead ends are on record: an explanation wants them whole.
        """
        if len(self.ends) < _TOLD or key_of(plugin) in self.present:
            return None
        for capability, specifier in plugin.requires.items():
            for blame in self.hopeless.get((capability, specifier, ""), ()):
                if blame <= self.present or blame <= self.present | {key_of(plugin)}:
                    return blame
        return None

    def _refusal(self, plugin: Manifest, need: Need) -> Refusal | None:
        version = plugin.provides[need.capability]
        if need.plugin and plugin.id != need.plugin:
            return Refusal(plugin, "other", f"the profile names {need.plugin}")
        if not within(version, need.specifier):
            return Refusal(plugin, "version", f"it provides {need.capability} {version}")
        key = key_of(plugin)
        if key not in self.misfits:
            self.misfits[key] = self.misfit(plugin)
        unfit = self.misfits[key]
        if unfit is not None:
            return Refusal(plugin, unfit.cause, unfit.detail)
        same = self.chosen.get(plugin.id)
        if same is not None:
            if same.version == plugin.version:
                return None
            return Refusal(plugin, "taken", f"version {same.version} of it is chosen already", same)
        if (holder := self.serving.get(need.capability)) is not None:
            return Refusal(plugin, "taken", f"{need.capability} is served by {holder.id} already", holder)
        clashes = (_clash(plugin, other) for other in self.chosen.values())
        return next((found for found in clashes if found is not None), None)


def _clash(plugin: Manifest, other: Manifest) -> Refusal | None:
    """Why two plugins cannot be in one deployment."""
    shared = sorted(plugin.provides.keys() & other.provides.keys())
    if shared:
        return Refusal(plugin, "conflict", f"it and {other.id} both provide {shared[0]}", other)
    for one, two in ((plugin, other), (other, plugin)):
        if two.id in one.conflicts and within(two.version, one.conflicts[two.id]):
            versions = one.conflicts[two.id] or "of any version"
            return Refusal(plugin, "excluded", f"{one.id} conflicts with {two.id} {versions}", other)
        for capability in one.optional.keys() & two.provides.keys():
            if not within(two.provides[capability], one.optional[capability]):
                detail = f"{one.id} works with {capability} {one.optional[capability]} only, {two.id} provides "
                return Refusal(plugin, "optional", detail + f"{capability} {two.provides[capability]}", other)
    if plugin.permissions.network == other.permissions.network == "listen":
        return Refusal(plugin, "listen", f"it and {other.id} would both listen at service.port", other)
    return None


def _form(need: Need) -> tuple[str, str, str]:
    """What of a need decides who can serve it."""
    return (need.capability, need.specifier, need.plugin)


def key_of(plugin: Manifest) -> Key:
    """A plugin's identity in a catalog."""
    return (plugin.id, plugin.version)


def needs_of(plugin: Manifest) -> tuple[Need, ...]:
    """What a plugin requires, in a fixed order."""
    return tuple(Need(capability, specifier, by=plugin.id) for capability, specifier in sorted(plugin.requires.items()))


@lru_cache(maxsize=65536)
def within(version: str, specifier: str) -> bool:
    """Is the version one of those? Pre-releases count as what they are."""
    return SpecifierSet(specifier).contains(version, prereleases=True)
