"""What a bundle says it holds (/pih/bundle.json), and the check that /pih holds just that.

What is imported to get here, and the rest of the userland, the launcher has checked before. The weights file is left to
the storage plugin, which reads it anyway; it asks `digest_of` for what to expect.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pih_runtime.errors import SealError
from pih_runtime.numbers import whole

SCHEMA = 1
NAME = "bundle.json"
WEIGHTS = "weights"
_FIX = "load the image again, or build it again"


@dataclass(frozen=True, slots=True)
class Bundle:
    """files: path in the image -> 'sha256:…' of a file, or '-> target' of a symlink. digest: of bundle.json itself."""

    name: str
    lock: str
    digest: str
    files: Mapping[str, str]


def read(root: Path) -> Bundle:
    """Parse ROOT/bundle.json; SealError (exit 8) where it is missing or not one."""
    path = root / NAME
    try:
        text = path.read_bytes()
        # Given bytes, json would look for encodings that an image does not have.
        data = json.loads(text.decode(), parse_int=whole)
        if data["schema"] != SCHEMA:
            raise SealError(f"bundle schema {data['schema']} is not {SCHEMA}", where=str(path), fix=_FIX)
        files = {f"/{item['path'].lstrip('/')}": item.get("digest") or f"-> {item['target']}" for item in data["files"]}
        return Bundle(name=data["name"], lock=data["lock"], digest=_sha256(text), files=files)
    except OSError as problem:
        raise SealError(f"cannot read: {problem.strerror}", where=str(path), fix=_FIX) from problem
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        raise SealError(f"not a bundle's list of files: {problem!r}", where=str(path), fix=_FIX) from problem


def verify(root: Path) -> Bundle:
    """Check every file below `root` (the bundle's /pih) but the weights; SealError names the first that differs."""
    bundle = read(root)
    prefix = "/pih/"
    listed = {path[len(prefix) :]: want for path, want in bundle.files.items() if path.startswith(prefix)}
    try:
        found = dict(_walk(root))
    except OSError as problem:
        raise SealError(f"cannot read: {problem.strerror}", where=str(problem.filename), fix=_FIX) from problem
    for path, want in sorted(listed.items()):
        if _is_weights(path):
            continue
        if path not in found:
            raise SealError("listed in bundle.json but missing", where=str(root / path), fix=_FIX)
        have = found[path]
        if have != want:
            what = f"is {have}, and bundle.json says {want}: one of the two is damaged"
            raise SealError(what, where=str(root / path), fix=_FIX)
    extra = sorted(path for path in found if path not in listed and path != NAME)
    if extra:
        raise SealError("not listed in bundle.json", where=str(root / extra[0]), fix=_FIX)
    if bundle.lock != found.get("lock.json"):
        raise SealError(f"lock.json is {found.get('lock.json')}, the bundle was built from {bundle.lock}", fix=_FIX)
    return bundle


def digest_of(bundle: Bundle, path: str) -> str | None:
    """What `path` of the image should hash to; None where the bundle leaves it open (weights delivered apart)."""
    return bundle.files.get(path)


def _is_weights(path: str) -> bool:
    return path.split("/", 1)[0] == WEIGHTS


def _walk(root: Path) -> Iterator[tuple[str, str]]:
    """(path, digest or '-> target') of everything below root but directories and the weights."""
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in os.scandir(root / folder):
            path = f"{folder}{entry.name}"
            if entry.is_symlink():
                yield path, f"-> {Path(entry.path).readlink()}"
            elif entry.is_dir():
                if not _is_weights(path):
                    pending.append(f"{path}/")
            elif entry.is_file():
                yield path, _sha256(Path(entry.path).read_bytes())
            else:
                yield path, "neither a file, a directory nor a symlink"


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
