"""A publisher's catalog: a folder with plugins, `catalog.json` that names each by digest, and its signature.

catalog.json       what is published: id, version, path, sha256; yanked: why a release is withdrawn
catalog.json.sig   the publisher's signature of it
rotation.json      where the key was changed: the new key, signed by each older one
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import attrs

from pih.reading import json_of, read_at_most, said
from pih.structure import RefusedError, StructureError, dotted, structure, unstructure
from pih.trust import sign
from pih.trust.keyring import Key, Keyring, is_name
from pih.trust.sign import Signature
from pih_runtime.errors import ResolutionError

INDEX, SIGNED, ROTATION = "catalog.json", ".sig", "rotation.json"
SCHEMA = 1
NAMES = "1 to 64 letters, digits, '.', '_' and '-', e.g. vendor-stable"
_MAX_BYTES = 8 << 20
_FORMS = {"id": r"[a-z]{1,32}/[a-z0-9-]{1,64}", "version": r"[0-9A-Za-z.!+_-]{1,64}", "sha256": r"[0-9a-f]{64}"}


@attrs.frozen
class Entry:
    """One release. path: of its folder or archive, below the catalog's. sha256: of its canonical archive."""

    id: str
    version: str
    path: str
    sha256: str
    yanked: str = ""

    def __attrs_post_init__(self) -> None:
        """A catalog names what lies below it, and nothing else; what it says is shown before it is believed."""
        for key, form in _FORMS.items():
            if not re.fullmatch(form, getattr(self, key)):
                raise RefusedError(key, f"{getattr(self, key)[:80]!r} is none", "have its publisher sign it again")
        if self.path.startswith("/") or ".." in self.path.split("/") or "\0" in self.path:
            raise RefusedError("path", f"{self.path!r} is not below the catalog", "name a file beside catalog.json")


@attrs.frozen
class Index:
    """catalog.json. name: what users call the catalog."""

    schema: int
    name: str
    plugins: tuple[Entry, ...]

    def __attrs_post_init__(self) -> None:
        """Locks, commands and the keyring hold the name."""
        if not is_name(self.name):
            raise RefusedError("name", f"{self.name[:80]!r} is no catalog's name", NAMES)


@attrs.frozen
class Rotation:
    """A change of keys: `new` (base64), and the word of an older key for it."""

    new: str
    old: Signature


@attrs.frozen
class Rotations:
    """rotation.json."""

    schema: int
    rotations: tuple[Rotation, ...]


def is_catalog(folder: Path) -> bool:
    """Whether this is meant to be a catalog; reading it says whether it is one."""
    return os.path.lexists(folder / INDEX)


def read(folder: Path) -> tuple[Index, str]:
    """The index and its sha256; raises ResolutionError where it is none, or names nothing."""
    path = folder / INDEX
    fix = "get the catalog again from its publisher"
    try:
        raw = read_at_most(path, _MAX_BYTES)
        found = structure(json_of(raw), Index)
    except StructureError as failure:
        first = failure.problems[0]
        raise ResolutionError(f"{dotted(first.path)}: {first.what}", where=str(path), fix=fix) from failure
    except (OSError, ValueError) as problem:
        raise ResolutionError(f"not a catalog: {said(problem)}", where=str(path), fix=fix) from problem
    if found.schema != SCHEMA:
        raise ResolutionError(f"catalog schema {found.schema} is not {SCHEMA}", where=str(path), fix=fix)
    if not found.plugins:
        raise ResolutionError("it names no plugin", where=str(path), fix=fix)
    return found, hashlib.sha256(raw).hexdigest()


def text(found: Index | Rotations) -> str:
    """The file that says so."""
    return json.dumps(unstructure(found), indent=2) + "\n"


def signature(folder: Path) -> Signature | None:
    """The publisher's signature of the index."""
    return sign.read(folder / (INDEX + SIGNED))


def rotations(folder: Path) -> tuple[Rotation, ...]:
    """The changes of keys that the publisher tells, whether or not they are to be believed."""
    path = folder / ROTATION
    try:
        return structure(json_of(read_at_most(path, _MAX_BYTES)), Rotations).rotations
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, StructureError) as problem:
        raise ResolutionError(
            f"not a list of rotations: {said(problem)}", where=str(path), fix="get the catalog again from its publisher"
        ) from problem


def succession(key: str, told: tuple[Rotation, ...], keyring: Keyring) -> Key | None:
    """The trusted key of the keyring that vouches, through one rotation or several, for the public key `key`."""
    seen: set[str] = set()
    wanted = [key]
    while wanted:
        new = wanted.pop()
        seen.add(new)
        for step in told:
            if step.new != new or step.old.key in seen or not sign.made(step.old.key, "rotation", new, step.old):
                continue
            known = keyring.find(step.old.fingerprint)
            if known is not None and known.state == "trusted":
                return known
            if known is None or known.state == "rotated":
                wanted.append(step.old.key)
    return None
