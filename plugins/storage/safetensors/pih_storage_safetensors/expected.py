"""What the weights should be: a chunk table, and what vouches for it.

Embedded weights: /pih/weights.digests, listed in bundle.json like every file of the image. Weights delivered apart:
weights.digests beside them, believed on the digest that the lock pins. Without a pin it finds damage, not deceit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pih_runtime import bundle, digests
from pih_runtime.digests import Table
from pih_runtime.errors import LockError, SealError

BESIDE = "weights.digests"
APART_FIX = "mount the weights that were packed for this bundle, with their digests (pih weights pack)"
IMAGE_FIX = "load the image again, or build it again"


def expected(root: Path, weights: dict[str, Any]) -> tuple[Table | None, str]:
    """The table, None where there is none, and its digest where something vouches for it, else ''.

    weights: the lock's own part. SealError for a table that is not the expected one, or is missing where one is.
    """
    if weights["delivery"] == "embed":
        path, wanted = root / BESIDE, bundle.digest_of(bundle.read(root), f"/pih/{BESIDE}")
        if wanted is None:
            raise SealError("does not list the digests of the weights", where=str(root / bundle.NAME), fix=IMAGE_FIX)
        return _read(path, wanted, IMAGE_FIX), wanted
    path, pin = root / "weights" / BESIDE, str(weights["digest"])
    if not pin and not path.exists():
        return None, ""
    return _read(path, pin, APART_FIX), pin


def at_start(weights: dict[str, Any]) -> bool:
    """Whether all is checked before the worker is ready; otherwise what a step reads, before it does."""
    if weights["verify"] not in ("start", "first-use"):
        raise LockError(f"weights cannot be verified at {weights['verify']!r}", fix="build the bundle again")
    return bool(weights["verify"] == "start")


def check_size(table: Table, size: int, where: str, fix: str) -> None:
    """SealError where the file has more or fewer bytes than its table says."""
    if size != table.size:
        raise SealError(f"the weights have {size} bytes, their digests are of {table.size}", where=where, fix=fix)


def _read(path: Path, wanted: str, fix: str) -> Table:
    try:
        with path.open("rb") as file:
            text = file.read(digests.MOST + 1)
    except OSError as problem:
        raise SealError(
            f"cannot read the digests of the weights: {problem.strerror}", where=str(path), fix=fix
        ) from problem
    if len(text) > digests.MOST:
        raise SealError(f"more than {digests.MOST} bytes are no digests of weights", where=str(path), fix=fix)
    have = digests.root(text)
    if wanted and have != wanted:
        raise SealError(f"the digests of the weights are {have}, expected are {wanted}", where=str(path), fix=fix)
    try:
        return digests.parse(text)
    except ValueError as problem:
        raise SealError(f"no digests of weights: {problem}", where=str(path), fix=fix) from problem
