"""What a mirror holds: mirror.json, by which everything else in it is checked.

mirror.json
sha256/DIGEST      artifacts of locks
wheels/NAME.whl    what the launcher makes .venv from
"""

from __future__ import annotations

import json
import re

import attrs

from pih.reading import json_of
from pih.structure import StructureError, dotted, structure, unstructure
from pih_runtime.errors import FetchError

NAME = "mirror.json"
SCHEMA = 1
MOST = 1 << 24  # bytes of mirror.json
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl\Z")
_FIX = "export the mirror again"


@attrs.frozen
class LockRef:
    """A lock whose build the mirror carries. sha256: of its file."""

    profile: str
    sha256: str


@attrs.frozen
class Artifact:
    """A file below sha256/."""

    name: str
    version: str
    sha256: str
    size: int


@attrs.frozen
class Wheel:
    """A file below wheels/."""

    file: str
    sha256: str
    size: int


@attrs.frozen
class Listing:
    """All of it. python: versions that the wheels are for. left_out: in words, what a build needs besides."""

    schema: int
    locks: tuple[LockRef, ...]
    artifacts: tuple[Artifact, ...]
    wheels: tuple[Wheel, ...]
    python: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def files(self) -> dict[str, tuple[str, int]]:
        """Path in the mirror → sha256 and size of each file but mirror.json."""
        held = {f"sha256/{item.sha256}": (item.sha256, item.size) for item in self.artifacts}
        return held | {f"wheels/{wheel.file}": (wheel.sha256, wheel.size) for wheel in self.wheels}

    @property
    def size(self) -> int:
        """Bytes of those files."""
        return sum(size for _, size in self.files.values())


def to_json(listing: Listing) -> bytes:
    """mirror.json: the same listing, the same bytes."""
    return (json.dumps(unstructure(listing), indent=2, ensure_ascii=False) + "\n").encode()


def from_json(text: bytes, where: str) -> Listing:
    """Read and check; raises FetchError for what is no listing, or has names that are no names of files."""
    try:
        found = structure(json_of(text), Listing)
    except StructureError as failure:
        first = failure.problems[0]
        raise FetchError(f"{dotted(first.path)}: {first.what}", where=where, fix=_FIX) from failure
    except ValueError as problem:
        raise FetchError(f"not the listing of a mirror: {problem}", where=where, fix=_FIX) from problem
    if found.schema != SCHEMA:
        raise FetchError(f"mirror schema {found.schema} is not {SCHEMA}", where=where, fix=_FIX)
    for name in (item.name for item in found.artifacts):
        if not name or not name.isprintable():
            raise FetchError(f"{name!r} cannot be the name of an artifact", where=where, fix=_FIX)
    for path, (sha256, size) in found.files.items():
        wheel = path.removeprefix("wheels/")
        if not _DIGEST.match(sha256) or size < 0 or not (path.startswith("sha256/") or _WHEEL.match(wheel)):
            raise FetchError(f"{path!r} cannot be a file of a mirror", where=where, fix=_FIX)
    return found
