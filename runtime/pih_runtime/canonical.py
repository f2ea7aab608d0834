"""A digest for each part of a lock, kept in the lock itself: an accident or an edit by hand is noticed, and where.

Over the canonical form, so that neither layout nor the order of keys matters. Against malice there are signatures.
Imports nothing but `errors`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pih_runtime.errors import LockError

KEY = "digests"


def digests(lock: Mapping[str, Any]) -> dict[str, str]:
    """Sha256 of the canonical form of each of the lock's keys."""
    return {key: _digest(value) for key, value in sorted(lock.items()) if key != KEY}


def sealed(lock: Mapping[str, Any]) -> dict[str, Any]:
    """The lock with its digests as its last key."""
    return {**{key: value for key, value in lock.items() if key != KEY}, KEY: digests(lock)}


def check(lock: Mapping[str, Any], *, fix: str) -> None:
    """LockError naming the keys whose value is not the one that the lock was written with."""
    stated = lock.get(KEY)
    if not isinstance(stated, Mapping):
        raise LockError(f"{KEY}: missing, so nothing says that this is the lock as it was written", fix=fix)
    found = digests(lock)
    changed = sorted(key for key in found.keys() & stated.keys() if found[key] != stated[key])
    problems = {
        "changed": changed,
        "added": sorted(found.keys() - stated.keys()),
        "taken out": sorted(stated.keys() - found.keys()),
    }
    words = [f"{', '.join(keys)} {'were' if keys[1:] else 'was'} {how}" for how, keys in problems.items() if keys]
    if words:
        raise LockError(f"edited after it was written: {'; '.join(words)}", fix=fix)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
