"""Which plugins a deployment gets: the profile's needs, its preferences and the lock before, given to the solver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from packaging.specifiers import SpecifierSet

from pih import stale
from pih.catalog import Catalog, Manifest, abi_problem
from pih.lock import Lock, Target
from pih.profile import Profile
from pih.profile_rules import preference
from pih.resolve import explain, outside, taken
from pih.resolve.order import circle
from pih.resolve.outcome import DeadEnd, Solution
from pih.resolve.rules import Key, Misfit, Need, key_of
from pih.resolve.solve import solve
from pih.resolve.target import misfit
from pih.structure import nearest
from pih_runtime.errors import ResolutionError


def choose(profile: Profile, catalog: Catalog, target: Target, previous: Lock | None) -> Solution:
    """The plugins of the deployment, those of the lock before as long as they serve; raises ResolutionError."""
    held = frozenset((plugin.id, plugin.version) for plugin in previous.plugins) if previous else frozenset()
    kept = held & frozenset(key_of(plugin) for plugin in catalog.plugins if _is_kept(plugin, previous, catalog))
    preferred = [preference(text) for text in profile.intent.selection.prefer]
    _known(preferred, profile, catalog)
    names = [name for name, _ in preferred]
    rank = ranking(held, names, catalog)

    def searched(needs: tuple[Need, ...]) -> Solution | DeadEnd:
        return solve(needs, catalog.plugins, lambda plugin: unfit(plugin, target, kept, preferred), rank)

    needs = roots(profile, catalog.root)
    found = _sound(searched(needs), catalog)
    for need in passed_over(names, found, catalog, profile.reason(catalog.root, "selection", "prefer")):
        instead = searched((need, *needs))
        if isinstance(instead, DeadEnd) and instead.given_up:
            continue
        try:
            _sound(instead, catalog)
        except ResolutionError as problem:
            fix = f"{problem.fix}, or take {need.plugin} out of selection.prefer"
            raise ResolutionError(problem.what, where=problem.where, fix=fix) from problem
    taken.check(found, profile, catalog)
    outside.check_decided(found, catalog)
    return found


def _sound(found: Solution | DeadEnd, catalog: Catalog) -> Solution:
    if isinstance(found, DeadEnd):
        chain = explain.chain(found.need, found.served)
        raise outside.failure(found, chain, catalog, explain.failure(found, catalog.plugins))
    if circle(found):
        raise explain.cycle(found)
    return found


def passed_over(preferred: list[str], found: Solution, catalog: Catalog, reason: str) -> list[Need]:
    """For each preferred plugin in whose place one that is not preferred was taken: to need it, for the reason given.

    The search takes another where it cannot take the preferred one; the profile's author is told, not left to find out.
    """
    others = [(need, plugin) for need, plugin in found.served if plugin.id not in preferred]
    needs = []
    for name in preferred:
        provides = {capability for plugin in catalog.plugins if plugin.id == name for capability in plugin.provides}
        wanted = next((need for need, _ in others if need.capability in provides and not need.plugin), None)
        if wanted is not None:
            needs.append(Need(wanted.capability, wanted.specifier, plugin=name, reason=reason))
    return needs


def roots(profile: Profile, root: Path) -> tuple[Need, ...]:
    """What the profile itself asks for, each with its line."""
    intent = profile.intent
    needs = [
        _named("model.decoder", f"model/{intent.model.plugin}", profile.reason(root, "model", "plugin")),
        _named("backend.device", f"backend/{intent.backend.plugin}", profile.reason(root, "backend", "plugin")),
    ]
    if intent.backend.graphs:
        needs.append(_named("backend.graphs", "", profile.reason(root, "backend", "graphs")))
    if intent.transport.plugin or intent.device.count > 1:
        needs.append(_transport(profile, root))
    if intent.features.openai:
        needs.append(_named("surface.http", "", profile.reason(root, "features", "openai")))
    if intent.features.health:
        needs.append(_named("health.probe", "", profile.reason(root, "features", "health")))
    return tuple(needs)


def unfit(
    plugin: Manifest, target: Target, kept: frozenset[Key], preferred: list[tuple[str, SpecifierSet]]
) -> Misfit | None:
    """Why a plugin is out whatever else is chosen.

    kept: plugins whose files the lock before has; they outlive a withdrawal.
    """
    if problem := abi_problem(plugin.abi):
        return Misfit("abi", f"its {problem}")
    if plugin.yanked and key_of(plugin) not in kept:
        return Misfit("yanked", f"it was withdrawn: {plugin.yanked}")
    for name, versions in preferred:
        if plugin.id == name and not versions.contains(plugin.version, prereleases=True):
            return Misfit("unwanted", f"selection.prefer wants {name} {versions}")
    return misfit(plugin.target, target)


def ranking(held: frozenset[Key], preferred: list[str], catalog: Catalog) -> Callable[[Manifest], int]:
    """Preference between plugins: the profile's, in its order, then those of the lock before, then all others.

    Of these the source tree's own come first, so that none takes a place unasked; then those whose place the profile
    names. Which place a plugin is taken from is decided already (`trust.settle`).
    """

    def rank(plugin: Manifest) -> int:
        place = preferred.index(plugin.id) if plugin.id in preferred else len(preferred)
        origin = catalog.origin(plugin)
        from_where = 0 if origin is None else 1 if origin.entry >= 0 else 2
        return 6 * place + 3 * (key_of(plugin) not in held) + from_where

    return rank


def _is_kept(plugin: Manifest, previous: Lock | None, catalog: Catalog) -> bool:
    before = next((item for item in previous.plugins if item.id == plugin.id), None) if previous else None
    return before is not None and previous is not None and stale.same_files(before, previous, plugin, catalog)


def _known(preferred: list[tuple[str, SpecifierSet]], profile: Profile, catalog: Catalog) -> None:
    ids = sorted({plugin.id for plugin in catalog.plugins} | {item.id for item in catalog.refused})
    for name, _ in preferred:
        if name not in ids:
            near = nearest(name, ids)
            raise ResolutionError(
                f"Because {profile.reason(catalog.root, 'selection', 'prefer')},\n"
                f"  and the catalog has no plugin {name}.\n  So it cannot be preferred.",
                fix=f"{f'did you mean {near}? ' if near else ''}the catalog has {', '.join(ids)}",
            )


def _transport(profile: Profile, root: Path) -> Need:
    name = profile.intent.transport.plugin
    asked = ("transport", "plugin") if name else ("device", "count")
    return _named("transport.collectives", name and f"transport/{name}", profile.reason(root, *asked))


def _named(capability: str, plugin: str, reason: str) -> Need:
    return Need(capability, ">=1.0,<2", plugin=plugin, reason=reason)
