"""A publisher's side: signing a plugin's folder, packing it as a signed archive, indexing and signing a catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pih.structure import unstructure
from pih.trust import content, index, keys, places, sign
from pih.trust.find import signature_of
from pih.trust.index import Entry, Index, Rotation, Rotations
from pih_runtime.errors import ResolutionError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def sign_plugin(path: Path, private: Ed25519PrivateKey) -> Path:
    """Sign a plugin's folder or archive; returns the signature's path, beside the manifest or the archive."""
    target = signature_of(path)
    sign.write(target, sign.sign(private, "plugin", places.of_path(path).sha256))
    return target


def pack(folder: Path, archive: Path) -> Path:
    """Write a plugin's canonical archive."""
    archive.write_bytes(content.of_folder(folder).archive)
    return archive


def sign_catalog(folder: Path, name: str, private: Ed25519PrivateKey) -> Path:
    """Index the plugins below a folder, and sign that; releases that were withdrawn stay so. Returns the index's path.

    name '': as it was.
    """
    known = index.read(folder)[0] if index.is_catalog(folder) else None
    called = name or (known.name if known else "")
    if not called:
        raise UsageError("a new catalog needs a name", where=str(folder), fix="pih catalog sign --name NAME …")
    withdrawn = {(entry.id, entry.version): entry.yanked for entry in (known.plugins if known else ())}
    entries = []
    for path in sorted({*places.below(folder), *folder.glob("*.tar")}):
        held = places.of_path(path)
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
    digest = index.write(folder, Index(index.SCHEMA, called, ordered))
    sign.write(folder / (index.INDEX + index.SIGNED), sign.sign(private, "catalog", digest))
    return folder / index.INDEX


def rotate(folder: Path, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Path:
    """Let the old key vouch for the new one, and sign the catalog with the new one. Returns rotation.json's path."""
    told = index.rotations(folder)
    public = keys.public_of(new)
    added = Rotation(public, sign.sign(old, "rotation", public))
    path = folder / index.ROTATION
    data = unstructure(Rotations(index.SCHEMA, (*(step for step in told if step.new != public), added)))
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    sign_catalog(folder, "", new)
    return path
