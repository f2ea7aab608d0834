"""The vendor's collective library: ranks are the visible devices, each on a thread of its own.

Every rank of a group calls the same operation; each returns when all have called it. A rank that fails breaks the
group, and the others learn of it instead of waiting.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from pih_runtime.errors import WorkerError


@dataclass(slots=True)
class Group:
    """`size` ranks; the values that each has brought to the operation that runs."""

    size: int
    brought: dict[int, Sequence[float]] = field(default_factory=dict)
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size)

    def all_gather(self, rank: int, values: Sequence[float]) -> array[float]:
        """Every rank's values, in order of rank."""
        found = self._exchange(rank, values)
        return array("f", [value for part in found for value in part])

    def all_reduce(self, rank: int, values: Sequence[float]) -> array[float]:
        """The sum over ranks of each value, added in order of rank: every rank gets the same bits."""
        found = self._exchange(rank, values)
        if len({len(part) for part in found}) != 1:
            raise WorkerError(f"all_reduce of {[len(part) for part in found]} values", where="collectives")
        return array("f", [sum(column) for column in zip(*found, strict=True)])

    def abort(self) -> None:
        """Tell the others that a rank has failed."""
        self.barrier.abort()

    def _exchange(self, rank: int, values: Sequence[float]) -> list[Sequence[float]]:
        try:
            self.brought[rank] = values
            self.barrier.wait()
            found = [self.brought[index] for index in range(self.size)]
            self.barrier.wait()  # nobody may bring the next values before all have these
        except threading.BrokenBarrierError as broken:
            raise WorkerError("another device has failed", where="collectives") from broken
        return found
