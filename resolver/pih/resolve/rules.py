"""Which plugin can serve which need, and which cannot stand beside which: the rules, each with its words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import attrs
from packaging.specifiers import SpecifierSet

from pih.catalog import Manifest

Cause = Literal[
    "other", "version", "target", "abi", "yanked", "unwanted", "taken", "conflict", "excluded", "optional", "listen"
]
Key = tuple[str, str]  # of a plugin: id and version


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
    """Why a plugin is out whatever else is chosen. line: of a profile with which it would not be, if there is one."""

    cause: Cause
    detail: str
    line: str = ""


@attrs.frozen
class Refusal:
    """Why a plugin that gives the capability cannot serve the need.

    other: the chosen plugin that stands against it. line: as a misfit's.
    """

    plugin: Manifest
    cause: Cause
    detail: str
    other: Manifest | None = None
    line: str = ""


def refusal(plugin: Manifest, need: Need, unfit: Misfit | None, chosen: Mapping[str, Manifest]) -> Refusal | None:
    """Why the plugin cannot serve the need beside those that are chosen, by id; None where it can."""
    version = plugin.provides[need.capability]
    if need.plugin and plugin.id != need.plugin:
        return Refusal(plugin, "other", f"the profile names {need.plugin}")
    if not within(version, need.specifier):
        return Refusal(plugin, "version", f"it provides {need.capability} {version}")
    if unfit is not None:
        return Refusal(plugin, unfit.cause, unfit.detail, line=unfit.line)
    same = chosen.get(plugin.id)
    if same is not None:
        if same.version == plugin.version:
            return None
        return Refusal(plugin, "taken", f"version {same.version} of it is chosen already", same)
    holder = next((other for other in chosen.values() if need.capability in other.provides), None)
    if holder is not None:
        return Refusal(plugin, "taken", f"{need.capability} is served by {holder.id} already", holder)
    clashes = (clash(plugin, other) for other in chosen.values())
    return next((found for found in clashes if found is not None), None)


def clash(plugin: Manifest, other: Manifest) -> Refusal | None:
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
