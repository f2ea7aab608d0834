"""Which plugins a deployment gets: the profile's needs, its preferences and the lock before, given to the solver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from packaging.specifiers import SpecifierSet

from pih.catalog import Catalog, Manifest, abi_problem
from pih.lock import Lock, Target
from pih.profile import Profile
from pih.profile_rules import preference
from pih.resolve import explain, outside
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
    preferred = [preference(text) for text in profile.intent.selection.prefer]
    _known(preferred, profile, catalog)
    found = solve(
        roots(profile, catalog.root),
        catalog.plugins,
        lambda plugin: unfit(plugin, target, held, preferred),
        ranking(held, [name for name, _ in preferred], frozenset(catalog.origins)),
    )
    if isinstance(found, DeadEnd):
        chain = explain.chain(found.need, found.served)
        raise outside.failure(found, chain, catalog, explain.failure(found, catalog.plugins))
    if circle(found):
        raise explain.cycle(found)
    return found


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
    plugin: Manifest, target: Target, held: frozenset[Key], preferred: list[tuple[str, SpecifierSet]]
) -> Misfit | None:
    """Why a plugin is out whatever else is chosen. held: plugins of the lock before; they outlive a withdrawal."""
    if problem := abi_problem(plugin.abi):
        return Misfit("abi", f"its {problem}")
    if plugin.yanked and key_of(plugin) not in held:
        return Misfit("yanked", f"it was withdrawn: {plugin.yanked}")
    for name, versions in preferred:
        if plugin.id == name and not versions.contains(plugin.version, prereleases=True):
            return Misfit("unwanted", f"selection.prefer wants {name} {versions}")
    problem = misfit(plugin.target, target)
    return Misfit("target", problem) if problem else None


def ranking(held: frozenset[Key], preferred: list[str], outside: frozenset[Key]) -> Callable[[Manifest], int]:
    """Preference between plugins: the profile's, in its order, then those of the lock before, then all others.

    outside: plugins that are not the source tree's own. They come last, so that none takes a place unasked.
    """

    def rank(plugin: Manifest) -> int:
        place = preferred.index(plugin.id) if plugin.id in preferred else len(preferred)
        return 4 * place + 2 * (key_of(plugin) not in held) + (key_of(plugin) in outside)

    return rank


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
