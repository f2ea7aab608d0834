"""The user's keyring: which keys are believed, which are not any more, and the catalogs that `pih catalog add` named.

    $XDG_CONFIG_HOME/pih/keyring.json, else ~/.config/pih/keyring.json

Nothing but `pih catalog add` and its siblings writes it; a lock never does.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import attrs

from pih.home import home
from pih.reading import json_of, read_at_most, said
from pih.structure import StructureError, dotted, structure, unstructure
from pih.writing import replace
from pih_runtime.errors import UsageError

SCHEMA = 1
_MOST = 8 << 20
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
State = Literal["trusted", "rotated", "revoked"]


@attrs.frozen
class Key:
    """A publisher's key. public: base64. note: for 'rotated' the fingerprint after it, for 'revoked' the reason."""

    fingerprint: str
    public: str
    name: str
    state: State
    note: str = ""


@attrs.frozen
class Added:
    """A place that is searched for plugins in every lock: a catalog, a signed plugin's folder or archive.

    name: what locks call it. key: the fingerprint of its signer.
    """

    name: str
    path: str
    key: str


@attrs.frozen
class Keyring:
    """A user's decisions about trust."""

    schema: int = SCHEMA
    keys: tuple[Key, ...] = ()
    catalogs: tuple[Added, ...] = ()

    def find(self, fingerprint: str) -> Key | None:
        """The key of this fingerprint, whatever its state."""
        return next((key for key in self.keys if key.fingerprint == fingerprint), None)

    def succeeds(self, now: str, before: str) -> bool:
        """Whether `now` is the key `before`, or the one that came in its place."""
        seen: set[str] = set()
        while before != now:
            key = self.find(before)
            if key is None or key.state != "rotated" or before in seen:
                return False
            seen.add(before)
            before = key.note
        return True

    def with_key(self, key: Key) -> Keyring:
        """The keyring with this key, in place of an entry of the same fingerprint."""
        rest = (other for other in self.keys if other.fingerprint != key.fingerprint)
        return attrs.evolve(self, keys=tuple(sorted((*rest, key), key=lambda item: item.fingerprint)))

    def with_catalog(self, added: Added) -> Keyring:
        """The keyring with this place, the only one of its name."""
        rest = (other for other in self.catalogs if other.name != added.name)
        return attrs.evolve(self, catalogs=tuple(sorted((*rest, added), key=lambda item: item.name)))


def is_name(text: str) -> bool:
    """Whether a catalog may be called so."""
    return re.fullmatch(_NAME, text) is not None


def path_of(environment: Mapping[str, str]) -> Path:
    """Where the user's keyring lies."""
    config = (
        environment.get("XDG_CONFIG_HOME")
        or home(environment, "XDG_CONFIG_HOME to where pih/keyring.json is") / ".config"
    )
    return Path(config) / "pih" / "keyring.json"


def load(environment: Mapping[str, str]) -> Keyring:
    """The keyring, empty where there is no file; raises UsageError where the file is none."""
    path = path_of(environment)
    fix = "correct it, or delete it and add your catalogs again: pih catalog add"
    try:
        found = structure(json_of(read_at_most(path, _MOST)), Keyring)
    except FileNotFoundError:
        return Keyring()
    except StructureError as failure:
        first = failure.problems[0]
        raise UsageError(f"{dotted(first.path)}: {first.what}", where=str(path), fix=fix) from failure
    except (OSError, ValueError) as problem:
        raise UsageError(f"not a keyring: {said(problem)}", where=str(path), fix=fix) from problem
    if found.schema != SCHEMA:
        raise UsageError(f"keyring schema {found.schema} is not {SCHEMA}", where=str(path), fix=fix)
    return found


def change(environment: Mapping[str, str], made: Callable[[Keyring], Keyring]) -> None:
    """Put what `made` makes of the keyring in its place; changes of several processes come one after the other."""
    path = path_of(environment)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        save(made(load(environment)), environment)


def save(keyring: Keyring, environment: Mapping[str, str]) -> None:
    """Write beside and rename; the folder is made for its owner alone."""
    path = path_of(environment)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, json.dumps(unstructure(keyring), indent=2) + "\n", mode=0o600)
