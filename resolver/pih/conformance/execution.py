"""Kind execution: what an engine makes of requests, over a backend that answers each id with the next one.

The backend looks at every step: limits, positions, pages; what it finds wrong, a check reports.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from pih.conformance.findings import BrokenError, Named
from pih.conformance.standins import Pool
from pih.conformance.subject import Subject, stop
from pih_runtime.contracts import Engine, Piece, Request
from pih_runtime.errors import PihError, WorkerError, described
from pih_runtime.plan import Plan
from pih_runtime.step import Sampling, Step

_SECONDS = 10.0
_SHORTS = 200


def checks(subject: Subject) -> Iterator[Named]:
    """Answers, limits, fairness, and each way to end."""
    yield "engine: each request has its own answer, within the plan's limits", partial(_answers, subject)
    yield "engine: short of pages, each request has its own answer still", partial(_short, subject)
    yield "engine: what the cache has is not computed again, and told", partial(_cached, subject)
    yield "engine: a long prompt does not starve", partial(_fair, subject)
    yield "engine: stop ids, stop strings and length end an answer", partial(_ends, subject)
    yield "engine: what does not fit is refused", partial(_refuses, subject)
    yield "engine: a cancelled request says no more and gives its pages back", partial(_cancels, subject)
    yield "engine: drain lets requests end, and takes no more", partial(_drains, subject)
    yield "engine: stop ends what runs, with an error", partial(_stops, subject)
    yield "engine: a backend that fails is told to everyone", partial(_fails, subject, at="submit")
    yield "engine: a step that fails is told to everyone", partial(_fails, subject, at="wait")
    yield "engine: metrics have a type and a value", partial(_metrics, subject)


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
        self.gate.wait(_SECONDS)
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
            for prompt, how in self.asked.items()
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
        if not self.ended.wait(_SECONDS):
            raise BrokenError(f"a request does not end within {_SECONDS:g} s")
        if self.late:
            raise BrokenError("a request is told more after its end, or of fewer tokens than before")
        return "".join(piece.text for piece in self.pieces), self.pieces[-1].finish


@contextmanager
def _engine(
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


def _begin(
    engine: Engine, backend: Recorder, prompt: Sequence[int], new: int, deliver: Callable[[Piece], None], **more: Any
) -> Callable[[], None]:
    """Ask; returns what cancels it."""
    how = more.pop("how", Sampling())
    if prompt:
        backend.asked[tuple(prompt)] = how
    return engine.generate(Request(tuple(prompt), new, how, **{"stop_ids": frozenset[int](), **more}), deliver)


def _ask(engine: Engine, backend: Recorder, prompt: Sequence[int], new: int, **more: Any) -> Answer:
    answer = Answer()
    _begin(engine, backend, prompt, new, answer.take, **more)
    return answer


def _text(subject: Subject, last: int, new: int) -> str:
    """What the stand-ins for backend and text make of a prompt that ends so."""
    return "".join(chr((last + n) % subject.plan.vocab % 26 + 97) for n in range(1, new + 1))


def _answers(subject: Subject) -> None:
    """Prompts of every length, more at once than a step has room for, from several threads."""
    with _engine(subject) as (engine, backend):
        _answered(subject, engine, backend, [(n % 5, 1 + 5 * n % 37, 1 + n % 9) for n in range(24)])
        if backend.most < 2:
            raise BrokenError("every request is computed alone, however many there are")


def _short(subject: Subject) -> None:
    """Every prompt fits, and not what they grow to: some must give way, and come back."""
    for pages in (4, 5, 7):
        with _engine(subject, pool=Pool(pages, reuse=pages > 5)) as (engine, backend):
            _answered(subject, engine, backend, [(n % 5, 9 + n % 7, 30 + n % 5) for n in range(9)])


def _cached(subject: Subject) -> None:
    """The same prompt again, and one that goes on from it."""
    with _engine(subject, pool=Pool(reuse=True)) as (engine, backend):
        prompt = [number % subject.plan.vocab for number in range(33)]
        for ids, cached in ((prompt, 0), (prompt, 32), ([*prompt, 1, 2], 32), (prompt[:20], 16), ([9, *prompt], 0)):
            before = backend.computed
            answer = _ask(engine, backend, ids, 3)
            text, _ = answer.whole()
            if text != _text(subject, ids[-1], 3):
                raise BrokenError(f"with {cached} ids in the cache the answer is {text!r}")
            if told := [piece.cached for piece in answer.pieces if piece.cached != cached]:
                raise BrokenError(f"{cached} ids of a prompt were in the cache, a piece says {told[0]}")
            engine_did = backend.computed - before
            if engine_did > len(ids) - cached + 3:
                raise BrokenError(f"{cached} of {len(ids)} ids were in the cache, and {engine_did} are computed")


def _answered(subject: Subject, engine: Engine, backend: Recorder, wanted: Sequence[tuple[int, int, int]]) -> None:
    """Each of these requests, of first id, length and new ids, has what the stand-ins make of it."""
    answers: dict[int, Answer] = {}

    def ask(own: int) -> None:
        for number in range(own, len(wanted), 3):
            first, length, new = wanted[number]
            prompt = [(first + at) % subject.plan.vocab for at in range(length)]
            answers[number] = _ask(engine, backend, prompt, new, how=Sampling(0.5, seed=length))

    threads = [threading.Thread(target=ask, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    for number, (first, length, new) in enumerate(wanted):
        text, finish = answers[number].whole()
        right = _text(subject, first + length - 1, new)
        if (text, finish, answers[number].pieces[-1].tokens) != (right, "length", new):
            raise BrokenError(f"request {number} is answered {text!r} ({finish}), not {right!r} (length)")


def _fair(subject: Subject) -> None:
    """Short requests come as fast as they end; the long one must still come to its end."""
    with _engine(subject) as (engine, backend):
        long = _ask(engine, backend, [1] * 45, 10)
        shorts = [0]

        def another() -> None:
            if not long.ended.is_set() and shorts[0] < _SHORTS:
                shorts[0] += 1
                answer = Answer(after=another)
                _begin(engine, backend, [2, 3], 2, answer.take)

        for _ in range(6):
            another()
        long.whole()
        if shorts[0] >= _SHORTS:
            raise BrokenError(f"{_SHORTS} short requests were answered before a long one that came first")


def _ends(subject: Subject) -> None:
    with _engine(subject) as (engine, backend):
        letters = _text(subject, 1, 9)
        for what, more, wanted in (
            ("length", {}, (letters, "length")),
            ("a stop id", {"stop_ids": frozenset({5})}, (letters[:3], "stop")),
            ("a stop string", {"stop": (letters[2:5],)}, (letters[:2], "stop")),
            ("the first of two stop strings", {"stop": (letters[6], letters[4])}, (letters[:4], "stop")),
        ):
            found = _ask(engine, backend, [1], 9, **more).whole()
            if found != wanted:
                raise BrokenError(f"{what}: the answer is {found}, not {wanted}")


def _refuses(subject: Subject) -> None:
    with _engine(subject) as (engine, backend):
        for what, prompt in (
            ("an empty prompt", []),
            ("a prompt as long as the context", [1] * engine.context),
            ("an id past the vocabulary", [subject.plan.vocab]),
        ):
            try:
                _ask(engine, backend, prompt, 1)
            except ValueError:
                continue
            raise BrokenError(f"{what} is not refused with a ValueError")
        most = _ask(engine, backend, [1] * (engine.context - 1), 5)
        if most.whole()[1] != "length" or most.pieces[-1].tokens != 1:
            raise BrokenError("a prompt one shorter than the context is not answered with one id")


def _cancels(subject: Subject) -> None:
    """While it runs, while it waits for others, and after its end."""
    with _engine(subject) as (engine, backend):
        answer = Answer()

        def take(piece: Piece) -> None:
            if not answer.pieces:
                backend.gate.clear()  # the engine's own thread: it goes no further now
            answer.take(piece)

        cancel = _begin(engine, backend, [1], 40, take)
        if not answer.begun.wait(_SECONDS):
            raise BrokenError("a request gives no piece before its end")
        others = [_ask(engine, backend, [2], 5) for _ in range(subject.plan.limits.seqs)]
        waiting = Answer()
        _begin(engine, backend, [3], 5, waiting.take)()
        cancel()
        cancel()
        backend.gate.set()
        if any(other.whole()[1] != "length" for other in others):
            raise BrokenError("a request ends because others were cancelled")
        done = Answer()
        late = _begin(engine, backend, [4], 2, done.take)
        done.whole()
        late()
        last = _ask(engine, backend, [5], 2)
        engine.drain()
        if not last.ended.is_set():
            raise BrokenError("drain returns while a request runs, after another was cancelled")
        if answer.ended.is_set() or waiting.pieces:
            raise BrokenError("a cancelled request is told how it ends")
        if backend.pool.pages_free() != backend.pool.pages_total:
            raise BrokenError("a cancelled request keeps pages")


def _drains(subject: Subject) -> None:
    with _engine(subject) as (engine, backend):
        answers = [_ask(engine, backend, [1], 20) for _ in range(6)]
        engine.drain()
        if not all(answer.ended.is_set() for answer in answers):
            raise BrokenError("drain returns while a request runs")
        if any(answer.whole()[1] != "length" for answer in answers):
            raise BrokenError("drain cuts an answer off")
        try:
            _ask(engine, backend, [1], 1)
        except WorkerError:
            return
        raise BrokenError("a request after drain is not refused with a WorkerError")


def _stops(subject: Subject) -> None:
    with _engine(subject) as (engine, backend):
        answers = [_ask(engine, backend, [1], 40) for _ in range(6)]
        backend.gate.clear()
        timer = threading.Timer(0.2, backend.gate.set)
        timer.start()
        stop(engine)
        timer.join()
        for answer in answers:
            if not answer.ended.is_set() or answer.pieces[-1].finish not in ("error", "length"):
                raise BrokenError("stop leaves a request without an end")
        if not any(answer.pieces[-1].finish == "error" for answer in answers):
            raise BrokenError("stop waits for every answer: that is what drain is for")
        try:
            _ask(engine, backend, [1], 1)
        except WorkerError:
            return
        raise BrokenError("a request after stop is not refused with a WorkerError")


def _fails(subject: Subject, at: str) -> None:
    failed: list[BaseException] = []
    with _engine(subject, failed) as (engine, backend):
        backend.broken = at
        answer = _ask(engine, backend, [1], 5)
        text, finish = answer.whole()
        if finish != "error" or "the device is lost" not in text:
            raise BrokenError(f"the backend failed, and a request is told {text!r} ({finish})")
        stop(engine)
        if not failed or not isinstance(failed[0], PihError):
            raise BrokenError("the backend failed, and the worker is not told the cause (context.fail)")
        try:
            _ask(engine, backend, [1], 1)
        except WorkerError:
            return
        raise BrokenError("the backend failed, and requests are still taken")


def _metrics(subject: Subject) -> None:
    with _engine(subject) as (engine, backend):
        before = {name: value for name, kind, _, value in engine.metrics() if kind == "counter"}
        _ask(engine, backend, [1], 3).whole()
        engine.drain()
        found = list(engine.metrics())
    names = [name for name, _, _, _ in found]
    for name, kind, words, value in found:
        if kind not in ("counter", "gauge") or not isinstance(words, str) or not math.isfinite(value):
            raise BrokenError(f"metric {name} is a {kind} of value {value!r}")
    if len(set(names)) != len(names):
        raise BrokenError("two metrics have one name")
    after = {name: value for name, kind, _, value in found if kind == "counter"}
    if before.keys() != after.keys() or any(after[name] < before[name] for name in after):
        raise BrokenError("a counter falls, or there are others than before")
    if after and after == before:
        raise BrokenError("a request was answered, and no counter has risen")
