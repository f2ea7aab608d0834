"""A digest for each part of a lock, kept in the lock itself: an accident or an edit by hand is noticed, and where.

Over the canonical form, so that neither layout nor the order of keys matters. Beside the digest of a part with fields
stand marks, two hex digits for each of them in canonical order: too short to notice an edit by, and enough to say which
field it was. Against malice there are signatures. Imports nothing but `errors`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pih_runtime.errors import LockError

KEY = "digests"
_NAMES = ("id", "name", "symbol", "capability")  # what an entry of a list is called by
_MOST = 3  # fields that are named
_SHOWN = 200  # characters of each


def digests(lock: Mapping[str, Any]) -> dict[str, str]:
    """Sha256 of the canonical form of each of the lock's keys."""
    return {key: _digest(value) for key, value in sorted(lock.items()) if key != KEY}


def sealed(lock: Mapping[str, Any]) -> dict[str, Any]:
    """The lock with its digests as its last key."""
    whole = {key: value for key, value in lock.items() if key != KEY}
    return {**whole, KEY: {key: _stated(value) for key, value in sorted(whole.items())}}


def check(lock: Mapping[str, Any], *, fix: str) -> None:
    """LockError naming the fields whose value is not the one that the lock was written with, as far as can be told."""
    stated = lock.get(KEY)
    if not isinstance(stated, Mapping):
        raise LockError(f"{KEY}: missing, so nothing says that this is the lock as it was written", fix=fix)
    keys = lock.keys() - {KEY}
    changed = [name for key in sorted(keys & stated.keys()) for name in _changed(key, lock[key], stated[key])]
    problems = {
        "changed": [name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..." for name in changed],
        "added": sorted(keys - stated.keys()),
        "taken out": sorted(stated.keys() - keys),
    }
    words = [f"{', '.join(keys)} {'were' if keys[1:] else 'was'} {how}" for how, keys in problems.items() if keys]
    if words:
        raise LockError(f"edited after it was written: {'; '.join(words)}", fix=fix)


def _stated(value: Any) -> str:
    """The digest, over value and marks, and the marks."""
    marks = "".join(mark for _, mark in _marks(value, ""))
    return f"{_digest(value, marks)} {marks}".strip()


def _changed(key: str, value: Any, stated: object) -> list[str]:
    """The fields of this part that are not as they were written; the part itself where that cannot be told."""
    digest, _, marks = str(stated).partition(" ")
    if _digest(value, marks) == digest:
        return []
    now = list(_marks(value, key))
    written = [marks[at : at + 2] for at in range(0, len(marks), 2)]
    if len(now) != len(written):
        return [key]
    names = [name for (name, mark), before in zip(now, written, strict=True) if mark != before]
    return [*names[:_MOST], *([f"{len(names) - _MOST} more of {key}"] if names[_MOST:] else [])] or [key]


def _marks(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Each field below a value with its mark; nothing for a value that has none."""
    if isinstance(value, Mapping):
        below = [(f"{name}.{key}", value[key]) for key in sorted(value)]
    elif isinstance(value, list | tuple):
        below = [(f"{name}[{_called(item, number)}]", item) for number, item in enumerate(value)]
    else:
        return
    for path, item in below:
        if isinstance(item, Mapping | list | tuple) and item:
            yield from _marks(item, path)
        else:
            yield path, _digest(item)[:2]


def _called(item: Any, number: int) -> str:
    names = (item.get(name) for name in _NAMES) if isinstance(item, Mapping) else ()
    return next((name for name in names if isinstance(name, str)), str(number))


def _digest(value: Any, marks: str = "") -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256((text + marks).encode()).hexdigest()
