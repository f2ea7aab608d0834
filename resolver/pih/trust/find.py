"""Finding plugins outside the source tree: what the profile names, what is installed, what the keyring's catalogs have.

Every one is found with the verdict on it. What the profile names must be readable; anywhere else, what cannot be read
is reported as refused, so that a broken package breaks no deployment that does not want it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from pih.origin import Refused
from pih.profile import Profile
from pih.profile_schema import PluginSource
from pih.toml_lines import line_of
from pih.trust import index, places, sign
from pih.trust.content import MANIFEST, Content
from pih.trust.judge import Verdict, judge
from pih.trust.keyring import Added, Keyring
from pih_runtime.errors import ResolutionError

LOCAL = Verdict("local")


@attrs.frozen
class Found:
    """A plugin, and whose word there is for it. source: as its user names it. place: how it is found again."""

    content: Content
    source: str
    place: dict[str, str]
    verdict: Verdict


def found(profile: Profile, keyring: Keyring) -> Iterator[Found | Refused]:
    """Everything there is for this profile; what it names itself comes first, and only once."""
    named = {source.package for source in profile.intent.plugins if source.package}
    for number, source in enumerate(profile.intent.plugins):
        where = f"{profile.path}:{line_of(profile.lines, ('plugins', number))}"
        yield from _package(source, keyring, where) if source.package else _path(source, profile, keyring, where)
    yield from everywhere(keyring, frozenset(named))


def everywhere(keyring: Keyring, known: frozenset[str] = frozenset()) -> Iterator[Found | Refused]:
    """What is found without a profile: installed packages but those `known`, and the keyring's catalogs."""
    for item in places.installed():
        if item.package not in known:
            yield from _tolerant(f"package {item.package}", item.name, _installed(item, keyring, ""))
    for added in keyring.catalogs:
        yield from _tolerant(f"catalog {added.name}", added.name, _added(added, keyring))


def at(path: Path, keyring: Keyring, place: str) -> Iterator[Found]:
    """The plugins of a folder, an archive or a catalog, each with its verdict. place: how the user names the path."""
    if path.is_dir() and (path / index.INDEX).is_file():
        yield from _catalog(path, place, keyring, {"path": place}, place)
        return
    for plugin in places.below(path) if path.is_dir() else [path]:
        inner = place if plugin == path else f"{place.rstrip('/')}/{plugin.name}"
        held = places.of_path(plugin)
        verdict = judge(sign.read(signature_of(plugin)), "plugin", held.sha256, keyring, inner)
        yield Found(held, inner, {"path": inner}, verdict)


def signature_of(plugin: Path) -> Path:
    """Where the signature of a plugin's folder or archive lies."""
    return (plugin / MANIFEST if plugin.is_dir() else plugin).with_name(
        (MANIFEST if plugin.is_dir() else plugin.name) + index.SIGNED
    )


def _path(source: PluginSource, profile: Profile, keyring: Keyring, where: str) -> Iterator[Found]:
    path = (profile.path.parent / source.path).resolve()
    if not path.exists():
        raise ResolutionError(
            f"there is no {source.path} beside the profile",
            where=where,
            fix="correct the path; it is relative to the profile",
        )
    plugins = list(at(path, keyring, source.path))
    if not plugins:
        raise ResolutionError(
            f"{source.path} holds no plugin", where=where, fix=f"name a folder with {MANIFEST} or {index.INDEX}"
        )
    for plugin in plugins:
        yield attrs.evolve(plugin, verdict=LOCAL) if source.trust == "local" else plugin


def _package(source: PluginSource, keyring: Keyring, where: str) -> Iterator[Found]:
    found = [item for item in places.installed() if item.package.lower() == source.package.lower()]
    if not found:
        raise ResolutionError(
            f"no installed package {source.package} declares {places.GROUP} entry points",
            where=where,
            fix=f"install it beside pih: .venv/bin/python -m pip install {source.package}",
        )
    for item in found:
        yield from _installed(item, keyring, source.trust)


def _installed(item: places.Installed, keyring: Keyring, trust: str) -> Iterator[Found]:
    source = f"package {item.package}"
    if item.folder is None:
        raise ResolutionError(
            f"its entry point {item.name} names {item.file}, which is no folder",
            where=source,
            fix=f"let {places.GROUP} name the package that {MANIFEST} lies in",
        )
    held = places.of_path(item.folder)
    signature, entry = sign.read(signature_of(item.folder)), f'package = "{item.package}"'
    verdict = judge(signature, "plugin", held.sha256, keyring, str(item.folder), entry)
    place = {"package": item.package, "file": item.file}
    yield Found(held, source, place, LOCAL if trust == "local" else verdict)


def _added(added: Added, keyring: Keyring) -> Iterator[Found]:
    path, source = Path(added.path), f"catalog {added.name}"
    if not path.exists():
        raise ResolutionError(
            f"{added.path} is gone", where=source, fix="bring it back, or pih catalog remove " + added.name
        )
    if path.is_dir() and (path / index.INDEX).is_file():
        yield from _catalog(path, added.path, keyring, {"catalog": added.name}, source)
        return
    for plugin in at(path, keyring, added.path):
        yield attrs.evolve(plugin, source=source, place={"catalog": added.name})


def _catalog(path: Path, named: str, keyring: Keyring, place: dict[str, str], source: str) -> Iterator[Found]:
    listed, digest = index.read(path)
    signed = judge(index.signature(path), "catalog", digest, keyring, named)
    for entry in listed.plugins:
        own = {**place, "file": entry.path} if "catalog" in place else {"path": f"{named.rstrip('/')}/{entry.path}"}
        held = places.of_path(path / entry.path)
        manifest = held.manifest
        verdict = signed
        if held.sha256 != entry.sha256 or (manifest.id, manifest.version) != (entry.id, entry.version):
            verdict = Verdict(
                "",
                f"its files are not those that {source} names: sha256 {held.sha256}, the catalog says {entry.sha256}",
                "get the catalog again from its publisher",
            )
        elif entry.yanked:
            held = attrs.evolve(held, manifest=attrs.evolve(manifest, yanked=entry.yanked))
        yield Found(held, source, own, verdict)


def _tolerant(source: str, name: str, finding: Iterator[Found]) -> Iterator[Found | Refused]:
    try:
        yield from finding
    except ResolutionError as problem:
        yield Refused(name, "", source, (), f"{problem.where}: {problem.what}".removeprefix(": "), problem.fix)
