"""Finding plugins outside the source tree: what the profile names, what is installed, what the keyring's catalogs have.

Every one is found with the verdict on it. A place that the profile names must be there; anything else that cannot be
read is reported as refused, so that a broken package breaks no deployment that does not want it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import attrs

from pih.names import normalized
from pih.origin import LOCAL, Refused
from pih.profile import Profile
from pih.profile_schema import PluginSource
from pih.reading import said
from pih.toml_lines import line_of
from pih.trust import index, places, sign, vouched
from pih.trust.content import MANIFEST, Content
from pih.trust.index import Entry
from pih.trust.judge import Verdict, judge
from pih.trust.keyring import Added, Keyring
from pih_runtime.errors import ProfileError, ResolutionError

_OWN_WORD = Verdict(LOCAL)


@attrs.frozen
class Found:
    """A plugin, and whose word there is for it. source, place, entry: as in `Origin`."""

    content: Content
    source: str
    place: dict[str, str]
    verdict: Verdict
    entry: int = -1


@attrs.frozen
class Place:
    """Where a plugin or a catalog lies. named: as its user names the path. source, place: as of what is found there.

    entry: how a profile names it, where that is not by its path.
    """

    path: Path
    named: str
    source: str
    place: dict[str, str]
    entry: str = ""


Where = Callable[[str], Place]  # of a file in there; of all of it by ''


def by_path(path: Path, named: str) -> Where:
    """What a profile or a command names by its path."""

    def inner(file: str) -> Place:
        own = str(PurePosixPath(named, file))
        return Place(path / file, own, own, {"path": own})

    return inner


def found(profile: Profile, keyring: Keyring) -> Iterator[Found | Refused]:
    """Everything there is for this profile; what it names itself comes first, and only once."""
    named = {normalized(source.package) for source in profile.intent.plugins if source.package}
    for number, source in enumerate(profile.intent.plugins):
        where = f"{profile.path}:{line_of(profile.lines, ('plugins', number))}"
        finding = _package(source, keyring, where) if source.package else _path(source, profile, keyring, where)
        yield from (attrs.evolve(item, entry=number) for item in finding)
    yield from everywhere(keyring, frozenset(named))


def everywhere(keyring: Keyring, known: frozenset[str] = frozenset()) -> Iterator[Found | Refused]:
    """What is found without a profile: installed packages but those `known`, and the keyring's catalogs."""
    for item in places.installed():
        if normalized(item.package) not in known:
            yield from _tolerant(f"package {item.package}", item.name, _installed(item, keyring, ""))
    for added in keyring.catalogs:
        yield from _tolerant(f"catalog {added.name}", added.name, _added(added, keyring))


def at(where: Where, keyring: Keyring) -> Iterator[Found | Refused]:
    """The plugins of a folder, an archive or a catalog, each with its verdict; raises ResolutionError without any.

    One of several that cannot be read is refused, and spoils no other.
    """
    top = where("")
    if index.is_catalog(top.path):
        yield from _catalog(where, keyring)
    elif top.path.is_dir() and not places.is_plugin(top.path):
        inner = places.below(top.path)
        if not inner:
            fix = f"name a folder with {MANIFEST} or {index.INDEX}, or an archive"
            raise ResolutionError(f"{top.named} holds no plugin", fix=fix)
        for path in inner:
            yield from _tolerant(where(path.name).source, path.name, _one(where(path.name), keyring))
    else:
        yield _judged(top, keyring)


def signature_of(plugin: Path) -> Path:
    """Where the signature of a plugin's folder or archive lies."""
    return (plugin / MANIFEST if plugin.is_dir() else plugin).with_name(
        (MANIFEST if plugin.is_dir() else plugin.name) + index.SIGNED
    )


def _one(place: Place, keyring: Keyring) -> Iterator[Found]:
    yield _judged(place, keyring)


def _judged(place: Place, keyring: Keyring) -> Found:
    signature = sign.read(signature_of(place.path))
    held = vouched.signed(place.path, signature)
    verdict = judge(signature, "plugin", held.sha256, keyring, place.named, place.entry)
    return Found(held, place.source, place.place, verdict)


def _path(source: PluginSource, profile: Profile, keyring: Keyring, where: str) -> Iterator[Found | Refused]:
    path = Path(os.path.realpath(profile.path.parent / source.path))
    if not os.path.exists(path):  # noqa: PTH110 - raises nothing, however long the name
        raise ProfileError(
            f"there is no {source.path} beside the profile",
            where=where,
            fix="correct the path; it is relative to the profile",
        )
    try:
        plugins = list(at(by_path(path, source.path), keyring))
    except ResolutionError as problem:
        raise ResolutionError(problem.what, where=problem.where or where, fix=problem.fix) from problem
    for plugin in plugins:
        yield (
            attrs.evolve(plugin, verdict=_OWN_WORD) if isinstance(plugin, Found) and source.trust == "local" else plugin
        )


def _package(source: PluginSource, keyring: Keyring, where: str) -> Iterator[Found | Refused]:
    wanted = normalized(source.package)
    found = [item for item in places.installed() if normalized(item.package) == wanted]
    if not found:
        raise ProfileError(
            f"no installed package {source.package} declares {places.GROUP} entry points",
            where=where,
            fix=f"install it beside pih: .venv/bin/python -m pip install {source.package}",
        )
    for item in found:
        yield from _tolerant(f"package {item.package}", item.name, _installed(item, keyring, source.trust))


def _installed(item: places.Installed, keyring: Keyring, trust: str) -> Iterator[Found]:
    source = f"package {item.package}"
    if item.folder is None:
        raise ResolutionError(
            f"its entry point {item.name} names {item.file}, which is no folder",
            where=source,
            fix=f"let {places.GROUP} name the package that {MANIFEST} lies in",
        )
    again = {"package": item.package, "file": item.file}
    held = _judged(Place(item.folder, str(item.folder), source, again, f'package = "{item.package}"'), keyring)
    yield attrs.evolve(held, verdict=_OWN_WORD) if trust == "local" else held


def _added(added: Added, keyring: Keyring) -> Iterator[Found | Refused]:
    path, source = Path(added.path), f"catalog {added.name}"
    if not path.exists():
        raise ResolutionError(
            f"{added.path} is gone", where=source, fix="bring it back, or pih catalog remove " + added.name
        )

    def where(file: str) -> Place:
        named = by_path(path, added.path)(file)
        return attrs.evolve(named, source=source, place={"catalog": added.name} | ({"file": file} if file else {}))

    for item in at(where, keyring):
        if isinstance(item, Found) and (signer := item.verdict.key) and not keyring.succeeds(signer, added.key):
            why = f"it was added as signed by {added.key}, and is now signed by {signer}"
            fix = f"if its publisher says so: pih catalog add {shlex.quote(str(added.path))}"
            yield attrs.evolve(item, verdict=Verdict("", why, fix))
        else:
            yield item


def _catalog(where: Where, keyring: Keyring) -> Iterator[Found | Refused]:
    top = where("")
    listed, digest = index.read(top.path)
    signed = judge(index.signature(top.path), "catalog", digest, keyring, top.named)
    for entry in listed.plugins:
        yield from _tolerant(top.source, entry.id, _listed(entry, where, signed), entry.version)


def _listed(entry: Entry, where: Where, signed: Verdict) -> Iterator[Found]:
    top, own = where(""), where(entry.path)

    def other(digest: str) -> str:
        return f"its files are not those that {top.source} names: sha256 {digest}, the catalog says {entry.sha256}"

    held = vouched.content(own.path, lambda digest: "" if digest == entry.sha256 else other(digest))
    manifest, digest = held.manifest, held.sha256
    verdict = signed
    if digest != entry.sha256 or (manifest.id, manifest.version) != (entry.id, entry.version):
        verdict = Verdict("", other(digest), "get the catalog again from its publisher")
    elif entry.yanked:
        held = attrs.evolve(held, manifest=attrs.evolve(manifest, yanked=entry.yanked))
    yield Found(held, top.source, own.place, verdict)


def _tolerant(
    source: str, name: str, finding: Iterator[Found | Refused], version: str = ""
) -> Iterator[Found | Refused]:
    """What is found, and what could not be read as refused. name, version: what is known of that."""
    try:
        yield from finding
    except ResolutionError as problem:
        yield Refused(name, version, source, (), f"{problem.where}: {problem.what}".removeprefix(": "), problem.fix)
    except OSError as problem:
        why = f"{problem.filename or source}: {said(problem)}"
        yield Refused(name, version, source, (), why, "let it be read, or remove it")
