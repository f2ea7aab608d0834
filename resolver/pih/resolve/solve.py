"""The solver: which plugins serve the capabilities that a deployment needs.

A complete depth-first search, deterministic: needs in a fixed order, candidates by highest version, then id.
One plugin serves a capability in a deployment, since the worker knows a provider by its capability alone.
What is not needed is not chosen. A choice that leads nowhere is kept as a dead end for `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import attrs
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pih.catalog import Manifest

Cause = Literal["target", "version", "other", "taken", "conflict"]


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
class Refusal:
    """Why a plugin that gives the capability cannot serve the need."""

    plugin: Manifest
    cause: Cause
    detail: str


@attrs.frozen
class DeadEnd:
    """A need that nothing could serve, given the plugins chosen before it and how they were needed."""

    need: Need
    refusals: tuple[Refusal, ...]
    served: tuple[tuple[Need, Manifest], ...]


@attrs.frozen
class Solution:
    """served: every need with its plugin, in the order of the search."""

    plugins: tuple[Manifest, ...]
    served: tuple[tuple[Need, Manifest], ...]


def solve(
    roots: Iterable[Need], candidates: Iterable[Manifest], misfit: Callable[[Manifest], str]
) -> Solution | DeadEnd:
    """The plugins for `roots`, or the first dead end of the most preferred path.

    misfit: why the target rules a plugin out, or ''.
    """
    ordered = sorted(candidates, key=lambda plugin: plugin.id)
    ordered.sort(key=lambda plugin: Version(plugin.version), reverse=True)
    first: list[DeadEnd] = []

    def extend(needs: tuple[Need, ...], served: tuple[tuple[Need, Manifest], ...]) -> Solution | None:
        chosen = tuple(dict.fromkeys(plugin.id for _, plugin in served))
        if not needs:
            plugins = {plugin.id: plugin for _, plugin in served}
            return Solution(tuple(plugins[name] for name in sorted(chosen)), served)
        need, rest = needs[0], needs[1:]
        refusals = []
        for plugin in ordered:
            if need.capability not in plugin.provides:
                continue
            refusal = _refusal(plugin, need, served, misfit)
            if refusal is not None:
                refusals.append(refusal)
                continue
            new = () if plugin.id in chosen else _needs_of(plugin)
            found = extend((*rest, *new), (*served, (need, plugin)))
            if found is not None:
                return found
        first.append(DeadEnd(need, tuple(refusals), served))
        return None

    return extend(tuple(roots), ()) or first[0]


def _needs_of(plugin: Manifest) -> tuple[Need, ...]:
    return tuple(Need(capability, specifier, by=plugin.id) for capability, specifier in sorted(plugin.requires.items()))


def _refusal(
    plugin: Manifest, need: Need, served: tuple[tuple[Need, Manifest], ...], misfit: Callable[[Manifest], str]
) -> Refusal | None:
    version = plugin.provides[need.capability]
    if need.plugin and plugin.id != need.plugin:
        return Refusal(plugin, "other", f"the profile names {need.plugin}")
    if not SpecifierSet(need.specifier).contains(version, prereleases=True):
        return Refusal(plugin, "version", f"it provides {need.capability} {version}")
    if unfit := misfit(plugin):
        return Refusal(plugin, "target", unfit)
    for other_need, other in served:
        if other.id == plugin.id and other.version == plugin.version:
            continue
        if other.id == plugin.id:
            return Refusal(plugin, "taken", f"version {other.version} of it is chosen already")
        if need.capability in other.provides:
            return Refusal(plugin, "taken", f"{need.capability} is served by {other.id} already")
        shared = sorted(set(plugin.provides) & set(other.provides))
        if shared:
            return Refusal(
                plugin, "conflict", f"it and {other.id}, which serves {other_need.capability}, both provide {shared[0]}"
            )
    return None


def start_order(solution: Solution) -> tuple[str, ...]:
    """Ids of the plugins that run, each after those it requires; ties by id. Cycles are the caller's error."""
    running = {plugin.id for plugin in solution.plugins if plugin.runtime is not None}
    after: dict[str, set[str]] = {name: set() for name in running}
    for need, provider in solution.served:
        if need.by in running and provider.id in running:
            after[need.by].add(provider.id)
    order: list[str] = []
    while len(order) < len(running):
        ready = sorted(name for name in running if name not in order and after[name] <= set(order))
        if not ready:
            return ()
        order.append(ready[0])
    return tuple(order)
