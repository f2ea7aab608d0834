"""What a group of ranks must keep to, whatever carries its values: `all_gather`, `all_reduce`, `abort`.

Every rank calls the same operation with its rank and its values; each returns when all have called it. Results come in
order of rank, and are the same bits on each. A rank that fails calls `abort`; those that wait then raise.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

_SECONDS = 10.0
_ROUNDS = 50


class Group(Protocol):
    """Ranks 0 to size-1."""

    def all_gather(self, rank: int, values: Sequence[float]) -> Sequence[float]:
        """Every rank's values, in order of rank."""

    def all_reduce(self, rank: int, values: Sequence[float]) -> Sequence[float]:
        """The sum over ranks of each value."""

    def abort(self) -> None:
        """Nobody waits for this group any more."""


Make = Callable[[int], Group]
Found = list[Sequence[float] | BaseException | None]


class BrokenGroupError(Exception):
    """A group that does not keep to it."""


def gathers(make: Make) -> None:
    """Values of any length, in order of rank, over and over: none may overtake."""
    for size in (1, 2, 3):
        group = make(size)
        for number in range(_ROUNDS):
            found = _ranks(size, lambda rank: group.all_gather(rank, [rank + number * 0.5] * (rank + 1)))  # noqa: B023
            wanted = [rank + number * 0.5 for rank in range(size) for _ in range(rank + 1)]
            _same(found, wanted, f"all_gather of {size} ranks, round {number}")


def reduces(make: Make) -> None:
    """The sum; where it rounds, every rank the same way."""
    for size in (1, 2, 3):
        group = make(size)
        found = _ranks(size, lambda rank: group.all_reduce(rank, [rank + 1.0, -2.0 * rank]))  # noqa: B023
        total = sum(range(size))
        _same(found, [float(total + size), -2.0 * total], f"all_reduce of {size} ranks")
    group = make(3)
    found = _ranks(3, lambda rank: group.all_reduce(rank, [(1e17, 1.0, -1e17)[rank]]))
    bits = {array("f", item).tobytes() for item in found if not isinstance(item, BaseException) and item is not None}
    if len(bits) != 1:
        raise BrokenGroupError(f"all_reduce: ranks get different sums: {found}")


def aborts(make: Make) -> None:
    """A rank that fails leaves none waiting, and none with a result."""
    group = make(2)
    found = _ranks(2, lambda rank: _aborted(group) if rank else group.all_gather(rank, [1.0]))
    if not isinstance(found[0], Exception):
        raise BrokenGroupError(f"abort: the other rank gets {found[0]}, not an error")


CHECKS: dict[str, Callable[[Make], None]] = {"all_gather": gathers, "all_reduce": reduces, "abort": aborts}


def _aborted(group: Group) -> Sequence[float]:
    group.abort()
    return ()


def _same(found: Found, wanted: list[float], what: str) -> None:
    for rank, item in enumerate(found):
        if isinstance(item, BaseException) or item is None or list(item) != wanted:
            raise BrokenGroupError(f"{what}: rank {rank} gets {item!r}, not {wanted}")


def _ranks(size: int, action: Callable[[int], Sequence[float]]) -> Found:
    """What each rank's call returns or raises; each on a thread of its own."""
    found: Found = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = action(rank)
        except Exception as problem:  # noqa: BLE001 - the finding
            found[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    if any(thread.is_alive() for thread in threads):
        raise BrokenGroupError(f"a rank of {size} does not return")
    return found
