"""Weights that a carried file is to bring: those that the image's worker will take when it starts, far from any others.

It is held against what its lock pins, the digests beside the weights, and the tensors of the image's plan.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from pih.bundle import layout as layouts
from pih.bundle.layout import Layout
from pih.bundle.run import digests_of
from pih.lock import Lock
from pih.reading import read_at_most, said
from pih_runtime import digests, plan
from pih_runtime.digests import Table
from pih_runtime.errors import BuildError, SealError
from pih_steps.lower.safetensors import FILLER, read_lengths

_PLAN = "pih/plan.json"
_FIX = "give the file that was packed for this image, its digests beside it: pih weights pack --output FILE"


def check(image: Layout, lock: Lock, path: Path) -> None:
    """Raises SealError for a file that the image's worker would refuse."""
    try:
        _check_tensors(image, path)
        _check_digests(lock.weights.digest, path)
    except OSError as problem:
        raise SealError(f"cannot read the weights: {said(problem)}", where=str(path), fix=_FIX) from problem


def _check_tensors(image: Layout, path: Path) -> None:
    """Those of the plan, of all its ranks, each with its length, and no other but filler."""
    wanted = plan.from_json(layouts.member(image, _PLAN), f"{image.path}: /{_PLAN}").stored
    try:
        with path.open("rb") as stream:
            found = read_lengths(stream, path.stat().st_size, str(path))
    except BuildError as problem:
        raise SealError(f"no packed weights: {problem.what}", where=str(path), fix=_FIX) from problem
    for name, size in wanted.items():
        if found.get(name) != size:
            have = f"{found[name]} bytes of it" if name in found else "none"
            what = f"the image's plan needs tensor {name!r} of {size} bytes, the file has {have}"
            raise SealError(what, where=str(path), fix=_FIX)
    for name in sorted(found.keys() - wanted.keys()):
        if not name.startswith(FILLER):
            raise SealError(f"the image's plan has no tensor {name!r}, the file has", where=str(path), fix=_FIX)


def _check_digests(pin: str, path: Path) -> None:
    """Without a pin, weights need no digests; those that lie beside them hold all the same."""
    beside = digests_of(path)
    if not pin and not beside.exists():
        return
    table = _table(beside, pin)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        have = digests.table_of(memoryview(mapped), table.chunk)
    if have != table:
        raise SealError(f"its bytes are not those of {beside}", where=str(path), fix=_FIX)


def _table(path: Path, pin: str) -> Table:
    try:
        text = read_at_most(path, digests.MOST)
        if pin and (have := digests.root(text)) != pin:
            raise ValueError(f"they are {have}, and the image pins {pin}")
        return digests.parse(text)
    except (OSError, ValueError) as problem:
        raise SealError(f"no digests of the weights: {said(problem)}", where=str(path), fix=_FIX) from problem
