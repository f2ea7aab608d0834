"""Believing a publisher: what adding a catalog would change in the keyring, to be shown before it is done."""

from __future__ import annotations

from pathlib import Path

import attrs

from pih.origin import Refused
from pih.trust import find, index, keys, sign, vouched
from pih.trust.keyring import Added, Key, Keyring
from pih.trust.sign import Signature
from pih_runtime.errors import ResolutionError, SealError, UsageError


@attrs.frozen
class Offer:
    """A signed catalog, plugin or archive, whose signature holds. plugins: (id, version) of what it has.

    before: the trusted key that vouches for this one, which takes its place; None where there is none.
    """

    name: str
    path: Path
    key: str
    fingerprint: str
    plugins: tuple[tuple[str, str], ...]
    before: Key | None


def offer(path: Path, keyring: Keyring, name: str = "") -> Offer:
    """What is at `path`; raises where it is not signed, was changed since, or the keyring could not accept it.

    name: what to call it; '' as before, else as its publisher does.
    """
    path = path.resolve()
    if index.is_catalog(path):
        listed, digest = index.read(path)
        called, word, signature = listed.name, "catalog", index.signature(path)
        plugins = tuple((entry.id, entry.version) for entry in listed.plugins)
        told = index.rotations(path)
    else:
        signature = sign.read(find.signature_of(path))
        held = vouched.signed(path, signature)
        called, word, digest = held.manifest.id, "plugin", held.sha256
        plugins, told = ((held.manifest.id, held.manifest.version),), ()
    key = _checked(signature, word, digest, path)
    fingerprint = keys.fingerprint(key)
    before = index.succession(key, told, keyring) if keyring.find(fingerprint) is None else None
    here = next((added.name for added in keyring.catalogs if added.path == str(path)), called)
    offered = Offer(name or here, path, key, fingerprint, plugins, before)
    accepted(offered, keyring)
    return offered


def accepted(offered: Offer, keyring: Keyring) -> Keyring:
    """The keyring that believes the offer's key, and no longer one that this replaces; raises where it must not."""
    where, known = str(offered.path), keyring.find(offered.fingerprint)
    if known is not None and known.state != "trusted":
        what = f"revoked: {known.note}" if known.state == "revoked" else f"replaced by {known.note}"
        raise ResolutionError(
            f"it is signed by {offered.fingerprint}, which was {what}",
            where=where,
            fix="get a release with another key",
        )
    if offered.before is not None and keyring.find(offered.before.fingerprint) != offered.before:
        raise UsageError("the keyring was changed meanwhile", where=where, fix="add it again")
    for other in keyring.catalogs:
        if other.name == offered.name and other.path != where:
            raise UsageError(
                f"{other.path} is called {other.name} already",
                where=where,
                fix=f"call this one otherwise with --name, or pih catalog remove {other.name}",
            )
    name = known.name if known else offered.name
    changed = keyring.with_key(Key(offered.fingerprint, offered.key, name, "trusted"))
    if offered.before is not None:
        changed = changed.with_key(attrs.evolve(offered.before, state="rotated", note=offered.fingerprint))
    return changed.with_catalog(Added(offered.name, str(offered.path), offered.fingerprint))


def revoked(keyring: Keyring, fingerprint: str, reason: str) -> Keyring:
    """The keyring that never believes this key again."""
    known = keyring.find(fingerprint)
    entry = Key(fingerprint, known.public if known else "", known.name if known else "", "revoked", reason)
    return keyring.with_key(entry)


def removed(keyring: Keyring, name: str) -> Keyring:
    """The keyring without the catalog of this name; its key stays."""
    rest = tuple(item for item in keyring.catalogs if item.name != name)
    if rest == keyring.catalogs:
        names = ", ".join(item.name for item in rest)
        raise UsageError(f"no catalog is called {name}", fix=f"one of {names}" if names else "none was added")
    return attrs.evolve(keyring, catalogs=rest)


def verified(path: Path, keyring: Keyring) -> list[find.Found]:
    """Every plugin at `path` with the verdict on it; raises SealError for one not to be believed, or none."""
    try:
        found = list(find.at(find.by_path(path.resolve(), str(path)), keyring))
    except ResolutionError as problem:
        raise SealError(problem.what, where=problem.where, fix=problem.fix) from problem
    good = []
    for item in found:
        if isinstance(item, Refused):
            raise SealError(f"{item.id} {item.version}: {item.why}", where=str(path), fix=item.fix)
        if not item.verdict.key:
            name = f"{item.content.manifest.id} {item.content.manifest.version}"
            raise SealError(f"{name}: {item.verdict.why}", where=str(path), fix=item.verdict.fix)
        good.append(item)
    return good


def _checked(signature: Signature | None, word: str, digest: str, path: Path) -> str:
    """The public key of a signature that holds, whoever's it is."""
    if signature is None:
        raise ResolutionError(
            "it is not signed",
            where=str(path),
            fix='for a folder of your own, name it in the profile: [[plugins]] path = …, trust = "local"',
        )
    if not sign.made(signature.key, word, digest, signature):
        raise ResolutionError(vouched.otherwise(signature), where=str(path), fix=vouched.AGAIN)
    return signature.key
