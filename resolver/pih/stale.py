"""Whether a lock still answers its profile with the plugins that there are.

Only what was locked counts: other plugins, comments, layout and order do not make a lock stale.
"""

from __future__ import annotations

import shlex

from pih.catalog import Catalog, Manifest, fingerprint
from pih.lock import Lock, Permissions, Plugin, RuntimeHalf, path_for
from pih.origin import LOCAL
from pih.profile import Profile
from pih_runtime.errors import LockError


def check(lock: Lock, profile: Profile, catalog: Catalog) -> None:
    """Raise LockError (exit 5) where the profile, or a plugin that the lock has, is not as it was locked.

    catalog: as it was settled beside this lock (`trust.Offers.beside`).
    A new plugin does not matter: `pih lock` keeps to those that are locked, as long as they serve.
    """
    where = str(path_for(profile.path))
    fix = f"pih lock --profile {shlex.quote(str(profile.path))}"
    if lock.profile.sha256 != profile.sha256:
        raise LockError(f"the lock was made from another state of {profile.path}", where=where, fix=fix)
    for plugin in lock.plugins:
        problem = _moved(plugin, lock, catalog)
        if problem:
            raise LockError(f"plugins: {problem}", where=where, fix=fix)


def withdrawn(lock: Lock, catalog: Catalog) -> dict[str, str]:
    """Why the publisher has withdrawn what the lock has, by id and version. Such a lock holds; a new one would not."""
    known = {(plugin.id, plugin.version): plugin for plugin in catalog.plugins if plugin.yanked}
    return {
        f"{plugin.id} {plugin.version}": now.yanked
        for plugin in lock.plugins
        if (now := known.get((plugin.id, plugin.version)))
        and same_files(plugin, lock, now, catalog)
        and (_word(now, catalog) == LOCAL) == (plugin.trust == LOCAL)  # a copy of one's own is nobody's to withdraw
    }


def same_files(plugin: Plugin, lock: Lock, now: Manifest, catalog: Catalog) -> bool:
    """Whether the catalog's plugin of this id and version has the files that the lock has."""
    origin = catalog.origin(now)
    carried = [item.sha256 for item in lock.artifacts if plugin.artifact and item.name == plugin.artifact]
    return ([origin.sha256] if origin else []) == carried


def runtime_half(plugin: Manifest) -> RuntimeHalf | None:
    """What a lock says of the half that runs; the order of wheels in the manifest does not matter."""
    part = plugin.runtime
    if part is None:
        return None
    wheels = tuple(sorted(part.wheels))
    return RuntimeHalf(part.package, part.entry, wheels, part.host_bytes, part.host_bytes_per_token)


def permissions(plugin: Manifest) -> Permissions:
    """What a lock says of what the plugin may reach."""
    asked = plugin.permissions
    lists = (asked.devices, asked.paths, asked.environment)
    return Permissions(asked.network, *(tuple(sorted(names)) for names in lists))


def _moved(plugin: Plugin, lock: Lock, catalog: Catalog) -> str:
    """Why the catalog's plugin is not the locked one, or ''."""
    name = f"{plugin.id} {plugin.version}"
    known = [item for item in catalog.plugins if item.id == plugin.id]
    now = next((item for item in known if item.version == plugin.version), None)
    if now is None:
        refused = [item for item in catalog.refused if (item.id, item.version) == (plugin.id, plugin.version)]
        refused = refused or [item for item in catalog.refused if (item.version, item.source) == ("", plugin.source)]
        if refused:  # in several places perhaps; what became of the place that was locked is what matters
            why = next((item.why for item in refused if item.source == plugin.source), refused[0].why)
            return f"{name} is refused: {why}"
        offers = ", ".join(item.version for item in known)
        return f"the lock has {name}, the catalog {f'has {offers}' if offers else 'has no such plugin any more'}"
    if not same_files(plugin, lock, now, catalog):
        return f"the files of {name} are others than those that were locked"
    trust, origin = _word(now, catalog), catalog.origin(now)
    if trust != plugin.trust:
        return f"{name} was trusted on the word of {plugin.trust}, and now on that of {trust}"
    if origin is not None and not origin.held:
        return f"{name} lies elsewhere than when it was locked"
    if fingerprint(now) != plugin.manifest:
        return f"the plugin.toml of {name} says something else than when it was locked{_tables(plugin, now)}"
    return ""


def _word(now: Manifest, catalog: Catalog) -> str:
    origin = catalog.origin(now)
    return origin.trust if origin else "built-in"


def _tables(plugin: Plugin, now: Manifest) -> str:
    """The tables of the manifest that differ, of those that a lock repeats."""
    required = {need.capability: need.specifier for need in plugin.requires if need.capability not in now.optional}
    same = {
        "abi": now.abi == plugin.abi,
        "licence": now.licence == plugin.licence,
        "provides": now.provides == plugin.provides,
        "requires": now.requires == required,
        "runtime": runtime_half(now) == plugin.runtime,
        "permissions": permissions(now) == plugin.permissions,
    }
    changed = ", ".join(key for key, kept in same.items() if not kept)
    return changed and f": {changed}"
