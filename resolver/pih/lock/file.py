"""A lock as its file: read and checked, written whole or not at all.

JSON, UTF-8, two-space indent, keys in the order of the classes, lists in the order the resolver gives (which is
stable), so that a diff of two locks reads well. Bazel, Nix and the worker read the same file.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from pih.lock.data import Lock, LockFile
from pih.reading import json_of, read_at_most, said
from pih.structure import StructureError, dotted, show, structure, unstructure
from pih.writing import replace
from pih_runtime import canonical
from pih_runtime.errors import LockError

SCHEMA = 1
_MOST = 1 << 24  # bytes; a lock of ten thousand artifacts has less than half of it


def path_for(profile: Path) -> Path:
    """Where a profile's lock lies: beside it, `x.toml` and `x.lock.json`."""
    return profile.with_suffix(".lock.json")


def to_json(lock: Lock) -> str:
    """The lock's text: the same lock, the same bytes."""
    return json.dumps(canonical.sealed(unstructure(lock)), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str | bytes, where: str) -> Lock:
    """Parse and check; raises LockError (exit 5) where it is not a lock of this schema, as `to_json` wrote it."""
    fix = "write the lock again: pih lock"
    if len(text) > _MOST:
        raise LockError(f"more than {_MOST} bytes are too many for a lock", where=where, fix=fix)
    try:
        data = json_of(text)
    except ValueError as problem:
        raise LockError(f"not JSON: {problem}", where=where, fix=fix) from problem
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise LockError(f"lock schema {show(schema)} is not {SCHEMA}", where=where, fix=fix)
    try:
        found = structure(data, LockFile)
        canonical.check(data, fix=fix)
    except StructureError as failure:
        first = failure.problems[0]
        raise LockError(f"{dotted(first.path)}: {first.what}", where=where, fix=fix) from failure
    except LockError as edited:
        raise LockError(edited.what, where=where, fix=edited.fix) from edited
    return Lock(**{field.name: getattr(found, field.name) for field in attrs.fields(Lock)})


def read(path: Path) -> Lock:
    """Read and check a lock."""
    try:
        raw = read_at_most(path, _MOST)
    except OSError as problem:
        raise LockError(
            f"cannot read the lock: {problem.strerror}", where=str(path), fix="write it: pih lock"
        ) from problem
    except ValueError as problem:
        fix = "write it again: pih lock" if path.is_file() else "move it out of the way, and write the lock: pih lock"
        raise LockError(f"cannot read the lock: {said(problem)}", where=str(path), fix=fix) from problem
    return from_json(raw, str(path))


def write(lock: Lock, path: Path) -> None:
    """Write the lock's file, or leave the one that is there."""
    replace(path, to_json(lock))
