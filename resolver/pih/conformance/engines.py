"""An engine that runs over stand-ins, and what looks at its steps and keeps its answers.

The backend answers each id with the next one, and holds each step against limits, positions and pages.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pih.conformance.findings import BrokenError
from pih.conformance.standins import Pool
from pih.conformance.subject import Subject, stop
from pih_runtime.contracts import Engine, Piece, Request
from pih_runtime.errors import WorkerError, described
from pih_runtime.plan import Plan
from pih_runtime.step import Sampling, Step

SECONDS = 10.0


class Recorder:
    """backend.device: after id n comes n+1. wrong: what steps broke. gate: steps end while it is set.

    asked: each prompt, and how it is to be sampled. computed: tokens of all steps; most: sequences of the largest.
    """

    def __init__(self, plan: Plan, pool: Pool) -> None:
        self.plan, self.pool = plan, pool
        self.wrong: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.broken = ""  # which call fails
        self.asked: dict[tuple[int, ...], Sampling] = {}
        self.computed = self.most = 0
        self._cells: dict[int, tuple[int, int]] = {}  # place in the cache -> position and id that it holds
        self._sampled: dict[int, int] = {}
        self._flying = 0

    def submit(self, step: Step) -> object:
        """Answers at once; `wait` waits for the gate."""
        if self.broken == "submit":
            raise WorkerError("made to fail: the device is lost")
        self._flying += 1
        ids = [token if token >= 0 else self._sampled.get(-token - 1, -1) for token in step.ids]
        self._look(step, ids)
        found = [(ids[row] + 1) % self.plan.vocab for row in step.rows]
        self._sampled.update(zip(step.row_slots, found, strict=True))
        return found

    def wait(self, ticket: object) -> list[int]:
        """The next id of each wanted row."""
        self.gate.wait(SECONDS)
        self._flying -= 1
        if self.broken == "wait":
            raise WorkerError("made to fail: the device is lost")
        assert isinstance(ticket, list)
        return ticket

    def logits(self) -> list[memoryview]:
        """Nobody asks an engine's backend for them."""
        return [memoryview(array("f", bytes(4 * self.plan.vocab)))]

    def _look(self, step: Step, ids: Sequence[int]) -> None:
        limits, cache = self.plan.limits, self.plan.caches[0]
        seqs = len(step.seq_start) - 1
        self.computed, self.most = self.computed + len(ids), max(self.most, seqs)
        told = [
            (self._flying > 2, f"{self._flying} steps are in flight"),
            (len(step.ids) > limits.tokens, f"a step of {len(step.ids)} tokens, the limit is {limits.tokens}"),
            (seqs > limits.seqs, f"a step of {seqs} sequences, the limit is {limits.seqs}"),
            (len(set(step.row_slots)) != len(step.rows), "two rows sample into one slot"),
            (any(not 0 <= slot < limits.seqs for slot in step.row_slots), "a sampling slot past the limit"),
            (max(step.positions, default=0) >= limits.context, "a position past the context"),
            (len(step.sampling) != len(step.rows), "not one way to sample for each wanted row"),
            (len(set(step.slots)) != len(step.slots), "two tokens write to one place of the cache"),
        ]
        for index, (start, end) in enumerate(pairwise(step.seq_start)):
            pages = step.page_table[index * step.pages_per_seq : (index + 1) * step.pages_per_seq]
            positions = step.positions[start:end].tolist()
            places = [pages[p // cache.page_size] * cache.page_size + p % cache.page_size for p in positions]
            told.append((positions != list(range(positions[0], positions[0] + len(positions))), "positions jump"))
            told.append((places != step.slots[start:end].tolist(), "tokens are not written where the page table says"))
            self._cells |= {
                place: (at, ids[start + at - positions[0]]) for place, at in zip(places, positions, strict=True)
            }
            held = [
                self._cells.get(pages[p // cache.page_size] * cache.page_size + p % cache.page_size, (-1, -1))
                for p in range(positions[-1] + 1)
            ]
            told.append(
                ([at for at, _ in held] != [*range(len(held))], "a position before the tokens is not in the cache")
            )
            ways = self._ways([token for _, token in held])
            told.append((not ways, "a sequence's pages hold what no request asked for"))
            own = {step.sampling[n] for n, row in enumerate(step.rows) if start <= row < end}
            told.append((not own <= ways, "a row is sampled as another request asks for"))
        self.wrong += [words for broken, words in told if broken]

    def _ways(self, ids: Sequence[int]) -> set[Sampling]:
        """How those requests are sampled of which these ids may be the first."""
        return {
            how
            for prompt, how in self.asked.copy().items()  # another thread asks meanwhile
            if all(
                token == (prompt[at] if at < len(prompt) else (prompt[-1] + 1 + at - len(prompt)) % self.plan.vocab)
                for at, token in enumerate(ids)
            )
        }


@dataclass(slots=True)
class Answer:
    """What one request was told. late: pieces after the end, or that count fewer tokens than the last."""

    pieces: list[Piece] = field(default_factory=list)
    late: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    after: Callable[[], None] = lambda: None

    def take(self, piece: Piece) -> None:
        """Called from the engine's thread."""
        self.late += self.ended.is_set() or bool(self.pieces and piece.tokens < self.pieces[-1].tokens)
        self.pieces.append(piece)
        self.begun.set()
        if piece.finish:
            self.ended.set()
            self.after()

    def whole(self) -> tuple[str, str]:
        """(text, why it ended)."""
        if not self.ended.wait(SECONDS):
            raise BrokenError(f"a request does not end within {SECONDS:g} s")
        if self.late:
            raise BrokenError("a request is told more after its end, or of fewer tokens than before")
        return "".join(piece.text for piece in self.pieces), self.pieces[-1].finish


@contextmanager
def running_engine(
    subject: Subject, failed: list[BaseException] | None = None, pool: Pool | None = None
) -> Iterator[tuple[Engine, Recorder]]:
    """An engine, and what looks at it. At its end all pages must be free."""
    pool = pool or Pool()
    backend = Recorder(subject.plan, pool)
    told: list[BaseException] = [] if failed is None else failed
    engine = subject.start(served={"backend.device": backend, "memory.pages": pool}, fail=told.append)
    try:
        yield engine, backend
    finally:
        backend.gate.set()
        stop(engine)
    if backend.wrong:
        raise BrokenError(f"{backend.wrong[0]}, and {len(backend.wrong) - 1} more such steps")
    if failed is None and told:
        raise BrokenError(f"it ends the worker: {described(told[0])}")
    if pool.pages_free() != pool.pages_total:
        raise BrokenError(
            f"all requests have ended, and {pool.pages_total - pool.pages_free()} pages are not given back"
        )


def begin(
    engine: Engine, backend: Recorder, prompt: Sequence[int], new: int, deliver: Callable[[Piece], None], **more: Any
) -> Callable[[], None]:
    """Ask; returns what cancels it."""
    how = more.pop("how", Sampling())
    if prompt:
        backend.asked[tuple(prompt)] = how
    return engine.generate(Request(tuple(prompt), new, how, **{"stop_ids": frozenset[int](), **more}), deliver)


def ask(engine: Engine, backend: Recorder, prompt: Sequence[int], new: int, **more: Any) -> Answer:
    """Ask; returns what comes of it, as it comes."""
    answer = Answer()
    begin(engine, backend, prompt, new, answer.take, **more)
    return answer
