"""Kind execution: what an engine makes of requests, over a backend that answers each id with the next one."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from functools import partial

from pih.conformance.engines import SECONDS, Answer, Recorder, ask, begin, running_engine
from pih.conformance.findings import BrokenError, Named
from pih.conformance.standins import Pool
from pih.conformance.subject import Subject, stop
from pih_runtime.contracts import Engine, Piece
from pih_runtime.errors import PihError, WorkerError
from pih_runtime.step import Sampling

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


def _text(subject: Subject, last: int, new: int) -> str:
    """What the stand-ins for backend and text make of a prompt that ends so."""
    return "".join(chr((last + n) % subject.plan.vocab % 26 + 97) for n in range(1, new + 1))


def _answers(subject: Subject) -> None:
    """Prompts of every length, more at once than a step has room for, from several threads."""
    with running_engine(subject) as (engine, backend):
        _answered(subject, engine, backend, [(n % 5, 1 + 5 * n % 37, 1 + n % 9) for n in range(24)])
        if backend.most < 2:
            raise BrokenError("every request is computed alone, however many there are")


def _short(subject: Subject) -> None:
    """Every prompt fits, and not what they grow to: some must give way, and come back."""
    for pages in (4, 5, 7):
        with running_engine(subject, pool=Pool(pages, reuse=pages > 5)) as (engine, backend):
            _answered(subject, engine, backend, [(n % 5, 9 + n % 7, 30 + n % 5) for n in range(9)])


def _cached(subject: Subject) -> None:
    """The same prompt again, and one that goes on from it."""
    with running_engine(subject, pool=Pool(reuse=True)) as (engine, backend):
        prompt = [number % subject.plan.vocab for number in range(33)]
        for ids, cached in ((prompt, 0), (prompt, 32), ([*prompt, 1, 2], 32), (prompt[:20], 16), ([9, *prompt], 0)):
            before = backend.computed
            answer = ask(engine, backend, ids, 3)
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

    def some(own: int) -> None:
        for number in range(own, len(wanted), 3):
            first, length, new = wanted[number]
            prompt = [(first + at) % subject.plan.vocab for at in range(length)]
            answers[number] = ask(engine, backend, prompt, new, how=Sampling(0.5, seed=length))

    threads = [threading.Thread(target=some, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    for number, (first, length, new) in enumerate(wanted):
        text, finish = answers[number].whole()
        right = _text(subject, first + length - 1, new)
        if (text, finish, answers[number].pieces[-1].tokens) != (right, "length", new):
            raise BrokenError(f"request {number} is answered {text!r} ({finish}), not {right!r} (length)")


def _fair(subject: Subject) -> None:
    """Short requests come as fast as they end; the long one must still come to its end."""
    with running_engine(subject) as (engine, backend):
        long = ask(engine, backend, [1] * 45, 10)
        shorts = [0]

        def another() -> None:
            if not long.ended.is_set() and shorts[0] < _SHORTS:
                shorts[0] += 1
                answer = Answer(after=another)
                begin(engine, backend, [2, 3], 2, answer.take)

        for _ in range(6):
            another()
        long.whole()
        if shorts[0] >= _SHORTS:
            raise BrokenError(f"{_SHORTS} short requests were answered before a long one that came first")


def _ends(subject: Subject) -> None:
    with running_engine(subject) as (engine, backend):
        letters = _text(subject, 1, 9)
        for what, more, wanted in (
            ("length", {}, (letters, "length")),
            ("a stop id", {"stop_ids": frozenset({5})}, (letters[:3], "stop")),
            ("a stop string", {"stop": (letters[2:5],)}, (letters[:2], "stop")),
            ("the first of two stop strings", {"stop": (letters[6], letters[4])}, (letters[:4], "stop")),
        ):
            found = ask(engine, backend, [1], 9, **more).whole()
            if found != wanted:
                raise BrokenError(f"{what}: the answer is {found}, not {wanted}")


def _refuses(subject: Subject) -> None:
    with running_engine(subject) as (engine, backend):
        for what, prompt in (
            ("an empty prompt", []),
            ("a prompt as long as the context", [1] * engine.context),
            ("an id past the vocabulary", [subject.plan.vocab]),
        ):
            try:
                ask(engine, backend, prompt, 1)
            except ValueError:
                continue
            raise BrokenError(f"{what} is not refused with a ValueError")
        most = ask(engine, backend, [1] * (engine.context - 1), 5)
        if most.whole()[1] != "length" or most.pieces[-1].tokens != 1:
            raise BrokenError("a prompt one shorter than the context is not answered with one id")


def _cancels(subject: Subject) -> None:
    """While it runs, while it waits for others, and after its end."""
    with running_engine(subject) as (engine, backend):
        answer = Answer()

        def take(piece: Piece) -> None:
            if not answer.pieces:
                backend.gate.clear()  # the engine's own thread: it goes no further now
            answer.take(piece)

        cancel = begin(engine, backend, [1], 40, take)
        if not answer.begun.wait(SECONDS):
            raise BrokenError("a request gives no piece before its end")
        others = [ask(engine, backend, [2], 5) for _ in range(subject.plan.limits.seqs)]
        waiting = Answer()
        begin(engine, backend, [3], 5, waiting.take)()
        cancel()
        cancel()
        backend.gate.set()
        if any(other.whole()[1] != "length" for other in others):
            raise BrokenError("a request ends because others were cancelled")
        done = Answer()
        late = begin(engine, backend, [4], 2, done.take)
        done.whole()
        late()
        last = ask(engine, backend, [5], 2)
        engine.drain()
        if not last.ended.is_set():
            raise BrokenError("drain returns while a request runs, after another was cancelled")
        if answer.ended.is_set() or waiting.pieces:
            raise BrokenError("a cancelled request is told how it ends")
        if backend.pool.pages_free() != backend.pool.pages_total:
            raise BrokenError("a cancelled request keeps pages")


def _drains(subject: Subject) -> None:
    with running_engine(subject) as (engine, backend):
        answers = [ask(engine, backend, [1], 20) for _ in range(6)]
        engine.drain()
        if not all(answer.ended.is_set() for answer in answers):
            raise BrokenError("drain returns while a request runs")
        if any(answer.whole()[1] != "length" for answer in answers):
            raise BrokenError("drain cuts an answer off")
        try:
            ask(engine, backend, [1], 1)
        except WorkerError:
            return
        raise BrokenError("a request after drain is not refused with a WorkerError")


def _stops(subject: Subject) -> None:
    with running_engine(subject) as (engine, backend):
        answers = [ask(engine, backend, [1], 40) for _ in range(6)]
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
            ask(engine, backend, [1], 1)
        except WorkerError:
            return
        raise BrokenError("a request after stop is not refused with a WorkerError")


def _fails(subject: Subject, at: str) -> None:
    failed: list[BaseException] = []
    with running_engine(subject, failed) as (engine, backend):
        backend.broken = at
        answer = ask(engine, backend, [1], 5)
        text, finish = answer.whole()
        if finish != "error" or "the device is lost" not in text:
            raise BrokenError(f"the backend failed, and a request is told {text!r} ({finish})")
        stop(engine)
        if not failed or not isinstance(failed[0], PihError):
            raise BrokenError("the backend failed, and the worker is not told the cause (context.fail)")
        try:
            ask(engine, backend, [1], 1)
        except WorkerError:
            return
        raise BrokenError("the backend failed, and requests are still taken")


def _metrics(subject: Subject) -> None:
    with running_engine(subject) as (engine, backend):
        before = {name: value for name, kind, _, value in engine.metrics() if kind == "counter"}
        ask(engine, backend, [1], 3).whole()
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
