"""The vendor's collective library: ranks on threads, which meet to exchange what each has brought.

Every rank of a group calls the same operation; each returns when all have called it. Once a rank has said that it
failed, the others learn of it instead of waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from pih_runtime.errors import WorkerError

_WHERE = "transport/npu"


@dataclass(slots=True)
class Group:
    """`size` ranks, and what each has brought to the operation that runs. reason: why nobody waits any more."""

    size: int
    brought: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    reason: str = ""
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size)

    def exchange(self, rank: int, what: str, values: bytes) -> Sequence[bytes]:
        """What every rank has brought, in order of rank; WorkerError where they call unlike operations."""
        try:
            self.brought[rank] = (what, values)
            self.barrier.wait()
            found = [self.brought[index] for index in range(self.size)]
            self.barrier.wait()  # nobody may bring the next values before all have these
        except threading.BrokenBarrierError as broken:
            raise WorkerError(self.reason, where=_WHERE) from broken
        if len({name for name, _ in found}) != 1:
            raise WorkerError(f"ranks call unlike operations: {', '.join(name for name, _ in found)}", where=_WHERE)
        return [part for _, part in found]

    def abort(self, reason: str) -> None:
        """Nobody waits any more; the first reason stands."""
        self.reason = self.reason or reason
        self.barrier.abort()
