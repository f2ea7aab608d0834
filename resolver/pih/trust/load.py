"""The catalog of one deployment: the source tree's plugins, and those from outside that are trusted.

A plugin that is not trusted, or not made for this PIH, is no candidate; it is kept with its reason, so that a lock
that would need it says why, and `pih catalog list` shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from pih import catalog
from pih.catalog import Catalog, Manifest
from pih.names import normalized
from pih.origin import Origin, Refused
from pih.profile import Profile
from pih.profile_schema import PluginSource
from pih.toml_lines import line_of
from pih.trust import find, keyring
from pih.trust.find import Found
from pih.trust.matrix import Unfit, unfit
from pih_runtime.errors import ResolutionError


def load(root: Path, profile: Profile, environment: Mapping[str, str]) -> Catalog:
    """The catalog for this profile; raises ResolutionError where a place that it names cannot be read."""
    return joined(catalog.load(root), find.found(profile, keyring.load(environment)))


def here(root: Path, environment: Mapping[str, str]) -> Catalog:
    """The catalog without a profile: what every one of this host can have."""
    return joined(catalog.load(root), find.everywhere(keyring.load(environment)))


def check_named(profile: Profile, known: Catalog) -> None:
    """Raises ResolutionError where nothing may be chosen of what the profile names: it must not be passed over."""
    for number, source in enumerate(profile.intent.plugins):
        refused = [item for item in known.refused if _of(source, item.source)]
        if refused and not any(_of(source, origin.source) for origin in known.origins.values()):
            first = refused[0]
            raise ResolutionError(
                f"{first.id} {first.version} ({first.source}) is refused: {first.why}{first.table}",
                where=f"{profile.path}:{line_of(profile.lines, ('plugins', number))}",
                fix=first.fix,
            )


def _of(source: PluginSource, found: str) -> bool:
    """Whether that is how `find` says where the plugins of this entry are."""
    if source.package:
        return normalized(found.removeprefix("package ")) == normalized(source.package)
    return found == source.path or found.startswith(source.path.rstrip("/") + "/")


def joined(own: Catalog, found: Iterable[Found | Refused]) -> Catalog:
    """`own` with what was found outside, each as a candidate or as refused."""
    items = list(found)
    judged = [item for item in items if isinstance(item, Found)]
    releases = [item.content.manifest for item in judged]
    reserved = {plugin.id for plugin in own.plugins}
    plugins: list[Manifest] = list(own.plugins)
    origins: dict[tuple[str, str], Origin] = {}
    refused = [item for item in items if isinstance(item, Refused)]
    for item in judged:
        manifest = item.content.manifest
        key = (manifest.id, manifest.version)
        problem = _problem(item, reserved, releases, origins.get(key))
        if problem is not None:
            provides = tuple(manifest.provides)
            refused.append(Refused(*key, item.source, provides, problem.why, problem.fix, problem.table))
        elif key not in origins:
            held = item.content
            origins[key] = Origin(item.source, item.place, item.verdict.key, held.sha256, held.size, held.pins)
            plugins.append(manifest)
    return attrs.evolve(own, plugins=tuple(plugins), origins=origins, refused=tuple(refused))


def _problem(item: Found, reserved: set[str], releases: list[Manifest], other: Origin | None) -> Unfit | None:
    """Why it is no candidate, or None. Trust comes first: nothing else of it is believed before."""
    if not item.verdict.key:
        return Unfit(item.verdict.why, item.verdict.fix)
    if item.content.manifest.id in reserved:
        return Unfit("that id is a plugin of PIH's own", "its author must give it another id")
    if other is not None and other.sha256 != item.content.sha256:
        return Unfit(f"{other.source} has other files of the same version", "keep one of the two, or number them apart")
    return unfit(item.content.manifest, releases)
