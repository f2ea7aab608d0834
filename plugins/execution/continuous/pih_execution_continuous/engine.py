"""The engine: one thread that schedules, submits, books and delivers."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from pih_execution_continuous.answer import Answer
from pih_execution_continuous.batch import step_of
from pih_execution_continuous.scheduler import Scheduler
from pih_execution_continuous.sequence import Sequence, Share
from pih_runtime.contracts import Backend, Piece, Pool, Request, Text
from pih_runtime.errors import WorkerError, described

IN_FLIGHT = 2  # steps: the next is submitted before the last one's ids are read, so the device never waits for Python


class ContinuousEngine:
    """Serves execution.engine. Requests come in from any thread through the inbox; all else is the engine's thread."""

    def __init__(
        self, backend: Backend, pool: Pool, text: Text, queue: int, fail: Callable[[BaseException], None]
    ) -> None:
        self.context = min(backend.plan.limits.context, pool.pages_total * pool.page_size)
        self._backend = backend
        self._pool = pool
        self._text = text
        self._queue = queue
        self._fail = fail
        self._scheduler = Scheduler(backend.plan.limits, pool)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._keys = itertools.count()
        self._changed = threading.Condition()
        self._active = 0  # requests taken and not ended, guarded by _changed as is _refusal
        self._refusal = ""
        self._stopping = False
        self._counts = dict.fromkeys(("requests", "prompt", "cached", "new", "steps"), 0)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def generate(self, request: Request, deliver: Callable[[Piece], None]) -> Callable[[], None]:
        """Queue a request; see contracts.Engine."""
        vocab = self._backend.plan.vocab
        if not request.prompt:
            raise ValueError("the prompt is empty")
        if not all(0 <= token < vocab for token in request.prompt):
            raise ValueError(f"the prompt holds ids outside 0..{vocab - 1}")
        if len(request.prompt) >= self.context:
            raise ValueError(
                f"the prompt has {len(request.prompt)} tokens; the context is {self.context}, answer included"
            )
        limit = min(len(request.prompt) + max(1, request.max_tokens), self.context)
        answer = Answer(request, self._text.stream(), limit - len(request.prompt))
        sequence = Sequence(next(self._keys), request, limit, list(request.prompt), answer, deliver)
        with self._changed:
            if self._refusal:
                raise WorkerError(self._refusal)
            if self._active >= self._queue:
                raise WorkerError(f"{self._active} requests are waiting or running; this worker takes no more")
            self._active += 1
            self._inbox.put(lambda: self._scheduler.add(sequence))
        return lambda: self._inbox.put(lambda: self._end(sequence))

    def drain(self) -> None:
        """Accept nothing more and return when all requests have ended."""
        with self._changed:
            self._refusal = self._refusal or "the worker is stopping"
            self._changed.wait_for(lambda: self._active == 0)

    def stop(self) -> None:
        """End what still runs, with an error piece, and the thread."""
        with self._changed:
            self._refusal = self._refusal or "the worker is stopping"
        self._inbox.put(self._halt)
        self._thread.join()

    def metrics(self) -> Iterator[tuple[str, str, str, float]]:
        """Counts since start, and the state now."""
        counts, scheduler = self._counts, self._scheduler
        yield "pih_requests_total", "counter", "Requests ended.", counts["requests"]
        yield "pih_prompt_tokens_total", "counter", "Prompt tokens of ended requests.", counts["prompt"]
        yield "pih_cached_tokens_total", "counter", "Prompt tokens found in the cache.", counts["cached"]
        yield "pih_generated_tokens_total", "counter", "New tokens.", counts["new"]
        yield "pih_steps_total", "counter", "Steps run.", counts["steps"]
        yield "pih_preemptions_total", "counter", "Sequences put back for lack of cache pages.", scheduler.preemptions
        yield "pih_requests_running", "gauge", "Requests in the batch.", len(scheduler.running)
        yield "pih_requests_waiting", "gauge", "Requests that wait for a place.", len(scheduler.waiting)
        yield "pih_kv_pages", "gauge", "Cache pages in all.", self._pool.pages_total
        yield (
            "pih_kv_pages_free",
            "gauge",
            "Cache pages that nothing uses, or only as a prefix.",
            self._pool.pages_free(),
        )

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as problem:  # noqa: BLE001 - told to every request and to the microkernel, as the first cause
            self._end_all(f"the engine failed: {described(problem)}")
            self._fail(problem)
        else:
            self._end_all("the worker is stopping")

    def _loop(self) -> None:
        flights: deque[tuple[list[Share], object]] = deque()
        while not self._stopping:
            shares = self._scheduler.schedule()
            if shares:
                flights.append((shares, self._backend.submit(step_of(shares, self._pool))))
            if flights and (len(flights) == IN_FLIGHT or not shares):
                done, ticket = flights.popleft()
                self._book(done, self._backend.wait(ticket))
            self._take_in(block=self._scheduler.idle and not flights)
        for _, ticket in flights:  # leave nothing running behind
            self._backend.wait(ticket)

    def _book(self, shares: list[Share], sampled: list[int]) -> None:
        self._counts["steps"] += 1
        for sequence, token in self._scheduler.book(shares, sampled):
            self._counts["new"] += 1
            piece = sequence.answer.push(token)
            if piece is not None:
                sequence.deliver(piece)
                if piece.finish:
                    self._end(sequence)

    def _take_in(self, *, block: bool) -> None:
        """Do what other threads asked for; wait for it where there is nothing else to do."""
        try:
            while True:
                self._inbox.get(block=block)()
                block = False
        except Empty:
            return

    def _end(self, sequence: Sequence) -> None:
        if sequence.done:
            return
        self._scheduler.end(sequence)
        self._counts["requests"] += 1
        self._counts["prompt"] += len(sequence.request.prompt)
        self._counts["cached"] += sequence.answer.cached
        with self._changed:
            self._active -= 1
            self._changed.notify_all()

    def _end_all(self, reason: str) -> None:
        with self._changed:
            self._refusal = self._refusal or reason
        self._take_in(block=False)
        for sequence in (*self._scheduler.running, *self._scheduler.waiting):
            sequence.deliver(sequence.answer.failed(reason))
            self._end(sequence)

    def _halt(self) -> None:
        self._stopping = True
