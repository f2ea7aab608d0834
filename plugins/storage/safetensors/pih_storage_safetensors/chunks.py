"""The chunks of a mapped weights file: each is compared with its digest once, by several threads at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

from pih_runtime.digests import Table
from pih_runtime.errors import SealError


class Chunks:
    """What is not checked yet of a map. Any thread may ask; what is asked for twice is compared once.

    fix: what to do about weights that differ.
    """

    def __init__(self, data: memoryview, table: Table, threads: int, where: str, fix: str) -> None:
        self._data = data
        self._table = table
        self._threads = threads
        self._where = where
        self._fix = fix
        self._left = set(range(table.count))
        self._broken: SealError | None = None
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many are not checked."""
        return len(self._left)

    def check(self, spans: Mapping[str, tuple[int, int]]) -> bool:
        """Compare every chunk that holds a byte of the spans: start and end, by what lies there.

        Returns whether these were the last. SealError names the first that differs, and is the answer to every later
        question too.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            held: dict[int, str] = {}
            for what, (start, end) in spans.items():
                for index in self._table.covering(start, end):
                    held.setdefault(index, what)
            wanted = sorted(self._left.intersection(held))
            good = _good(self._table, self._data, wanted, self._threads)
            for index in wanted:
                if index not in good:
                    self._broken = self._differs(index, held[index])
                    raise self._broken
            self._left.difference_update(wanted)
            return bool(wanted) and not self._left

    def _differs(self, index: int, what: str) -> SealError:
        start = index * self._table.chunk
        end = min(start + self._table.chunk, self._table.size)
        return SealError(
            f"{what}: chunk {index} of the weights, bytes {start} to {end}, is not the one that its digest names",
            where=self._where,
            fix=self._fix,
        )


def _good(table: Table, data: memoryview, wanted: Sequence[int], threads: int) -> frozenset[int]:
    """Those that were seen to be right: one that no thread came to, for whatever reason, is not among them."""
    pending, good = deque(wanted), deque[int]()  # both ends of a deque are safe among threads

    def run() -> None:
        while True:
            try:
                index = pending.popleft()
            except IndexError:
                return
            if table.holds(index, data):
                good.append(index)

    others = [threading.Thread(target=run, name=f"weights-{n}") for n in range(1, min(threads, len(wanted)))]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    return frozenset(good)
