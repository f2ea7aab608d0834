"""What runs in the next step, and what a finished step means. No threads, no device, no text.

Order is arrival: whoever came first is never overtaken for cache pages. Running sequences are older than
all waiting ones, the youngest running one gives way (and is computed again later), so the oldest always
moves on and every request ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Ids

from pih_execution_continuous.sequence import Sequence, Share
from pih_runtime.contracts import Pool
from pih_runtime.plan import Limits


class Scheduler:
    """Sequences waiting and running under the plan's limits and the pool's pages."""

    def __init__(self, limits: Limits, pool: Pool) -> None:
        self._limits = limits
        self._pool = pool
        self._slots = list(range(limits.seqs - 1, -1, -1))
        self._full = False  # the first waiting one did not fit, and no page was given back since
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0

    @property
    def idle(self) -> bool:
        """Nothing to run, now or later."""
        return not self.running and not self.waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence; keys rise."""
        self.waiting.append(sequence)

    def schedule(self) -> list[Share]:
        """The next step's shares, at most the plan's tokens in all; empty where nothing can run now."""
        budget = self._limits.tokens
        shares: list[Share] = []
        for sequence in tuple(self.running):  # decodes first: an answer on its way does not wait for a prompt
            if sequence.slot >= 0 and sequence.remaining == 1 and self._open_ended(sequence) and self._page(sequence):
                shares.append(self._share(sequence, 1))
                budget -= 1
        for sequence in self.running:
            if sequence.remaining > 1 and budget > 0:
                shares.append(self._share(sequence, min(sequence.remaining, budget)))
                budget -= shares[-1].count
        while budget > 0 and (admitted := self._admit()) is not None:
            shares.append(self._share(admitted, min(admitted.remaining, budget)))
            budget -= shares[-1].count
        return shares

    def book(self, shares: Ids[Share], sampled: Ids[int]) -> Iterator[tuple[Sequence, int]]:
        """Enter a finished step; yields each sequence's new id. The caller ends those that are complete."""
        ids = iter(sampled)
        for share in shares:
            sequence = share.sequence
            token = next(ids) if share.wanted else -1
            if sequence.done:
                continue  # ended or cancelled while this step ran
            if share.residence == sequence.residence:
                self._computed(sequence, share.start + share.count)
            if share.wanted:
                sequence.flying -= 1
                sequence.ids.append(token)
                yield sequence, token

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence, running or waiting. A step that still holds it may run on: steps keep their order."""
        sequence.done = True
        if sequence.slot >= 0:
            self._leave(sequence)
        else:
            self.waiting.remove(sequence)
            self._full = False

    def _open_ended(self, sequence: Sequence) -> bool:
        return sequence.length < sequence.limit

    def _share(self, sequence: Sequence, count: int) -> Share:
        start = sequence.scheduled
        sequence.scheduled += count
        wanted = sequence.scheduled == sequence.length
        if wanted:
            sequence.flying += 1
        return Share(sequence, start, count, wanted, sequence.residence)

    def _page(self, sequence: Sequence) -> bool:
        """Make sure of the page for the next position; False where the sequence itself had to give way."""
        while not self._pool.grow(sequence.key, sequence.scheduled + 1):
            youngest = self.running[-1]
            self._leave(youngest)
            self.waiting.appendleft(youngest)
            self.preemptions += 1
            if youngest is sequence:
                return False
        return True

    def _admit(self) -> Sequence | None:
        """Let the first waiting sequence in, with pages for all its ids and one to spare for each that runs."""
        if not self.waiting or self._full or not self._slots or self.waiting[0].flying:
            return None
        sequence = self.waiting[0]
        reused = self._pool.begin(sequence.key, sequence.ids)
        if not self._pool.grow(sequence.key, len(sequence.ids)) or self._pool.pages_free() < len(self.running):
            self._pool.end(sequence.key)
            self._full = True
            return None
        self.waiting.popleft()
        self.running.append(sequence)
        sequence.slot = self._slots.pop()
        sequence.scheduled = sequence.computed = reused
        if not sequence.residence:
            sequence.answer.cached = reused
        return sequence

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._pool.end(sequence.key)
        self._slots.append(sequence.slot)
        self._full = False
        sequence.residence += 1
        sequence.slot = -1
        sequence.scheduled = sequence.computed = 0

    def _computed(self, sequence: Sequence, end: int) -> None:
        """Tell the pool once a page is full; it hashes whole pages only."""
        if end // self._pool.page_size > sequence.computed // self._pool.page_size:
            self._pool.computed(sequence.key, sequence.ids[:end])
        sequence.computed = end
