"""Entries that were made from artifacts, and whether they are what they were: outputs, interpreters, unpacked bundles.

    KIND/KEY/output       a file or folder; nobody writes to it again
    KIND/KEY/meta.json    digest of the output, a stamp of it, and facts about its making

A lookup compares the stamp: sizes, modes and times, so that it costs little whatever the size. Where that differs the
bytes are read: a copied store is as good as the first one. What is not what was recorded is removed, and made again.
The time of the folder KEY is that of the last lookup.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from pih.build import graph, tree
from pih.build.progress import Dropped, Listener
from pih.build.store import Place, Store
from pih.reading import json_of
from pih_runtime.errors import WorkerError

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@attrs.frozen
class Made:
    """An entry's output: where it lies, and the digest that was recorded of it."""

    path: Path
    digest: str


def find(store: Store, kind: Place, key: str, *, name: str, listener: Listener) -> Made | None:
    """The entry, if it is there and seems untouched. name: what it is to the user, should it be damaged."""
    place = store.place(kind, key)
    if not os.path.lexists(place):
        return None
    with suppress(OSError):  # a store that cannot be written has nothing taken away either
        os.utime(place, follow_symlinks=False)
    meta = _meta(place)
    if meta is not None:
        found = Made(place / "output", meta["output"])
        if stamp(found.path) == meta.get("stamp"):
            return found
        if _holds(found):
            with suppress(OSError):  # a store that cannot be written: the next lookup reads the bytes again
                _record(place, {**meta, "stamp": stamp(found.path)})
            return found
    drop(store, kind, key, name=name, listener=listener)
    return None


def intact(store: Store, kind: Place, key: str, *, name: str, listener: Listener) -> bool:
    """Read a found entry whole, before something is made from it; one that is damaged is dropped."""
    meta = _meta(store.place(kind, key))
    if meta is not None and _holds(Made(store.place(kind, key) / "output", meta["output"])):
        return True
    drop(store, kind, key, name=name, listener=listener)
    return False


def publish(
    store: Store, entry: Path, kind: Place, key: str, *, name: str, listener: Listener, facts: Mapping[str, Any]
) -> Made:
    """Record `output` in the workspace's folder `entry`, and move that to its place.

    Another process that was faster wins; an entry that is not whole does not.
    """
    digest = graph.output_digest(entry / "output")
    _record(entry, {**facts, "output": digest, "stamp": stamp(entry / "output")})
    for _ in range(2):
        place = store.publish(entry, kind, key)
        if found := find(store, kind, key, name=name, listener=listener):
            return found
    return Made(place / "output", digest)


def drop(store: Store, kind: Place, key: str, *, name: str, listener: Listener) -> None:
    """Take away what turned out to be damaged."""
    store.discard(kind, key)
    listener(Dropped(name))


@contextmanager
def held(output: Path) -> Iterator[None]:
    """Nobody takes a found entry away as unused while the block runs, however long.

    Raises WorkerError where that has just happened.
    """
    try:
        handle = os.open(output.parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise WorkerError("it was just taken away as unused", where=str(output), fix="run this again") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def name_of(place: Path) -> str:
    """The step that made what lies there; '' where that is not recorded."""
    return str((_meta(place) or {}).get("step", ""))


def _holds(made: Made) -> bool:
    try:
        return graph.output_digest(made.path) == made.digest
    except OSError:  # a sector that cannot be read, a file that is gone
        return False


def _meta(place: Path) -> dict[str, Any] | None:
    try:
        data = json_of((place / "meta.json").read_bytes())
    except (OSError, ValueError):
        return None
    sound = isinstance(data, dict) and isinstance(data.get("output"), str) and _DIGEST.match(data["output"])
    return data if sound else None


def _record(entry: Path, meta: Mapping[str, Any]) -> None:
    beside = entry / f".meta-{secrets.token_hex(6)}"
    beside.write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    beside.replace(entry / "meta.json")


def stamp(path: Path) -> str:
    """Changes with whatever an edit leaves behind; '' where there is nothing."""
    try:
        found = [("", path.lstat())]
        if stat.S_ISDIR(found[0][1].st_mode):
            found += [(entry.path, entry.stat(follow_symlinks=False)) for entry in tree.below(path)]
    except OSError:
        return ""
    lines = []
    for name, status in found:
        # What a folder holds is in the list itself.
        times = [] if stat.S_ISDIR(status.st_mode) else [status.st_size, status.st_mtime_ns]
        lines.append([name.removeprefix(os.fspath(path)), status.st_mode, *times])
    return hashlib.sha256(json.dumps(sorted(lines)).encode()).hexdigest()
