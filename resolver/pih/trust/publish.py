"""A publisher's side: signing a plugin's folder, packing it as a signed archive, indexing and signing a catalog."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from pih.trust import content, index, keyring, keys, places, sign
from pih.trust.find import signature_of
from pih.trust.index import Entry, Index, Rotation, Rotations
from pih.writing import replace, replace_all
from pih_runtime.errors import ResolutionError, SealError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def sign_plugin(path: Path, private: Ed25519PrivateKey) -> Path:
    """Sign a plugin's folder or archive; returns the signature's path, beside the manifest or the archive."""
    target = signature_of(path)
    replace(target, sign.text(sign.sign(private, "plugin", places.of_path(path).content.sha256)))
    return target


def pack(folder: Path, archive: Path, private: Ed25519PrivateKey) -> None:
    """Write a plugin's canonical archive, with its signature beside it."""
    held = content.of_folder(folder)
    if archive.is_file():
        _check_place(archive)
    signature = sign.text(sign.sign(private, "plugin", held.content.sha256))
    replace_all({archive: held.archive, signature_of(archive): signature})


def _check_place(archive: Path) -> None:
    """Raises UsageError where a file is there that is no plugin's archive."""
    try:
        content.of_archive(archive)
    except ResolutionError as problem:
        fix = "name another file, or remove this one"
        raise UsageError("is there already, and is no plugin's archive", where=str(archive), fix=fix) from problem


def sign_catalog(folder: Path, name: str, private: Ed25519PrivateKey) -> Path:
    """Index the plugins below a folder, and sign that; releases that were withdrawn stay so. Returns the index's path.

    name '': as it was.
    """
    replace_all(_signed(folder, name, private))
    return folder / index.INDEX


def _signed(folder: Path, name: str, private: Ed25519PrivateKey) -> dict[Path, str]:
    """The index of a folder and its signature, by their paths."""
    known = index.read(folder)[0] if index.is_catalog(folder) else None
    called = name or (known.name if known else "")
    if not called:
        raise UsageError("a new catalog needs a name", where=str(folder), fix="pih catalog sign --name NAME …")
    if not keyring.is_name(called):
        raise UsageError(f"{called[:80]!r} cannot be a catalog's name", fix=index.NAMES)
    withdrawn = {(entry.id, entry.version): entry.yanked for entry in (known.plugins if known else ())}
    entries = []
    for path in sorted({*places.below(folder), *folder.glob("*.tar")}):
        held = places.of_path(path).content
        key = (held.manifest.id, held.manifest.version)
        entries.append(Entry(*key, path.name, held.sha256, withdrawn.get(key, "")))
    if not entries:
        raise ResolutionError(
            "no plugin is here", where=str(folder), fix="put plugins' folders or .tar archives into this folder"
        )
    twice = [entry for entry in entries if sum((e.id, e.version) == (entry.id, entry.version) for e in entries) > 1]
    if twice:
        raise ResolutionError(
            f"{twice[0].id} {twice[0].version} is here twice", where=str(folder), fix=f"remove {twice[1].path}"
        )
    ordered = tuple(sorted(entries, key=lambda entry: (entry.id, entry.version)))
    text = index.text(Index(index.SCHEMA, called, ordered))
    digest = hashlib.sha256(text.encode()).hexdigest()
    signature = sign.sign(private, "catalog", digest)
    return {folder / index.INDEX: text, folder / (index.INDEX + index.SIGNED): sign.text(signature)}


def rotate(folder: Path, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Path:
    """Let the old key vouch for the new one, and sign the catalog, as it is, with the new one.

    Returns rotation.json's path. Raises SealError where the catalog is not what the old key signed: a new key says no
    more than that the publisher has another one, and nobody signs unseen what was changed meanwhile.
    """
    told, digest = index.rotations(folder), _vouched(folder, old)
    before, public = keys.public_of(old), keys.public_of(new)
    if public == before or any(step.old.key == public for step in told):
        what = "the catalog is signed with that key already" if public == before else "the catalog has left that key"
        raise UsageError(what, where=str(folder), fix="make a new one: pih key generate")
    added = Rotation(public, sign.sign(old, "rotation", public))
    path = folder / index.ROTATION
    rotations = Rotations(index.SCHEMA, (*(step for step in told if step.new != public), added))
    signature = sign.text(sign.sign(new, "catalog", digest))
    replace_all({path: index.text(rotations), folder / (index.INDEX + index.SIGNED): signature})
    return path


def _vouched(folder: Path, signer: Ed25519PrivateKey) -> str:
    """The digest of a catalog that this key has signed, and whose plugins are as it says."""
    listed, digest = index.read(folder)
    signature = index.signature(folder)
    if signature is None:
        raise SealError("the catalog is not signed", where=str(folder), fix="sign it: pih catalog sign")
    name = signature.fingerprint
    if signature.key != keys.public_of(signer):
        fix = "give that key with --key"
        raise UsageError(f"the catalog is signed by {name}, not with this key", where=str(folder), fix=fix)
    fix = "get back what you published; where the change is yours, sign it: pih catalog sign"
    if not sign.made(signature.key, "catalog", digest, signature):
        raise SealError(f"it is not what {name} signed: it was changed afterwards", where=str(folder), fix=fix)
    for entry in listed.plugins:
        held = places.of_path(folder / entry.path).content
        if (held.manifest.id, held.manifest.version, held.sha256) != (entry.id, entry.version, entry.sha256):
            what = f"{entry.id} {entry.version} is not what {name} signed: it was changed afterwards"
            raise SealError(what, where=str(folder / entry.path), fix=fix)
    return digest
