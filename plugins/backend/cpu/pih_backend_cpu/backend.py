"""The running backend: takes steps from any thread, runs them one after the other on its team.

Thread 0 of the team is a Python thread that leaves the interpreter lock for a whole step; the
others stay inside the pack until `stop`.
"""

from __future__ import annotations

import ctypes
import threading
from array import array
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import SimpleQueue

from pih_backend_cpu.calls import call_table, scratch_shares
from pih_backend_cpu.memory import Region, allocate, buffer_address, release
from pih_backend_cpu.pack import CSampling, CStep, Pack
from pih_runtime import operands
from pih_runtime.contracts import Weights
from pih_runtime.errors import SealError, WorkerError, described
from pih_runtime.limits import check_step
from pih_runtime.plan import Plan
from pih_runtime.step import Step

MOST_IN_FLIGHT = 2
# What the sample kernel wants for each logit and share: its report says `scratch = { v = 2 }`.
_SCRATCH_FLOATS_PER_LOGIT = 2


@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted step. The arrays of `step` stay alive, and unmoved, until `done`."""

    step: Step
    raw: CStep
    done: threading.Event = field(default_factory=threading.Event)
    ids: list[int] = field(default_factory=list)
    error: BaseException | None = None


class CpuBackend:
    """`contracts.Backend` over a kernel pack."""

    def __init__(self, plan: Plan, pack: Pack, weights: Weights, threads: int) -> None:
        self.plan = plan
        self._pack = pack
        self._threads = threads
        self._weights = weights
        self._views = {weight.name: weights.unchecked(weight.name) for weight in plan.weights}
        self._scratch_floats = plan.vocab * _SCRATCH_FLOATS_PER_LOGIT
        with ExitStack() as acquired:

            def take(nbytes: int, purpose: str) -> Region:
                region = allocate(nbytes, purpose)
                acquired.callback(release, region)
                return region

            self._arena = take(plan.arena_bytes, "activations")
            caches = {cache.name: take(cache.nbytes, f"cache {cache.name}").address for cache in plan.caches}
            self._scratch = take(scratch_shares(plan, threads) * self._scratch_floats * 4, "sampling scratch")
            self._team = take(pack.team_bytes, "the thread team")
            sizes = {weight.name: weight.nbytes for weight in plan.weights}
            self._calls = call_table(
                plan, pack, threads, self._arena.address, caches,
                lambda name: buffer_address(self._views[name], sizes[name], name),
            )  # fmt: skip
            self._memory = acquired.pop_all()
        self._sampled = array("i", [0]) * plan.limits.seqs
        self._seq_of = array("i", [0]) * plan.limits.tokens
        self._sampled_slots: set[int] = set()
        self._lock = threading.Lock()
        self._waited_for: set[Ticket] = set()
        self._in_flight = 0
        self._finished_rows = 0
        self._stopped = False
        self._queue: SimpleQueue[Ticket | None] = SimpleQueue()
        self._workers = [threading.Thread(target=self._run, name="pih-cpu-0", daemon=True)]
        for index in range(1, threads):
            target = (self._team.address, index)
            self._workers.append(
                threading.Thread(target=pack.thread, args=target, name=f"pih-cpu-{index}", daemon=True)
            )
        for worker in self._workers:
            worker.start()

    def submit(self, step: Step) -> Ticket:
        """Start a step; at most two are in flight. Raises WorkerError past the plan's limits."""
        with self._lock:
            if self._stopped:
                raise WorkerError("the backend has stopped")
            if self._in_flight >= MOST_IN_FLIGHT:
                raise WorkerError(f"{MOST_IN_FLIGHT} steps are in flight already")
            check_step(step, self.plan, self._sampled_slots)
            ticket = Ticket(step, self._raw_step(step))
            self._sampled_slots.update(step.row_slots)
            self._waited_for.add(ticket)
            self._in_flight += 1
        self._queue.put(ticket)
        return ticket

    def wait(self, ticket: object) -> list[int]:
        """The sampled id of each wanted row, in order; a second time, WorkerError."""
        with self._lock:
            if not isinstance(ticket, Ticket) or ticket not in self._waited_for:
                raise WorkerError("not a ticket of this backend that is still waited for")
            self._waited_for.remove(ticket)
        ticket.done.wait()
        if isinstance(ticket.error, SealError):
            raise ticket.error
        if ticket.error is not None:
            raise WorkerError(f"the step failed: {described(ticket.error)}") from ticket.error
        return ticket.ids

    def logits(self) -> list[memoryview[float]]:
        """Logits of the wanted rows of the last finished step, each [V] float32: copies: the next step reuses them."""
        place = operands.logits(self.plan, arena=0)
        starts = (place.address + row * place.stride for row in range(self._finished_rows))
        return [memoryview(self._arena.mapping[start : start + place.columns * 4]).cast("f") for start in starts]

    def stop(self) -> None:
        """Finish what was submitted, end the threads, give the memory back. A second call does nothing."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._queue.put(None)
        self._workers[0].join()
        self._finished_rows = 0
        self._pack.stop(self._team.address)
        for worker in self._workers[1:]:
            worker.join()
        self._memory.close()
        self._views.clear()

    def _raw_step(self, step: Step) -> CStep:
        def address(values: array[int]) -> int:
            return values.buffer_info()[0]

        sampling = (CSampling * max(len(step.sampling), 1))()
        for place, item in zip(sampling, step.sampling, strict=False):
            place.temperature, place.top_k, place.top_p, place.min_p = (
                item.temperature,
                item.top_k,
                item.top_p,
                item.min_p,
            )
            place.seed = item.seed & ((1 << 64) - 1)
        return CStep(
            tokens=len(step.ids),
            seqs=len(step.seq_start) - 1,
            wanted=len(step.rows),
            pages_per_seq=step.pages_per_seq,
            ids=address(step.ids),
            positions=address(step.positions),
            seq_start=address(step.seq_start),
            page_table=address(step.page_table),
            slots=address(step.slots),
            rows=address(step.rows),
            row_slots=address(step.row_slots),
            sampling=sampling,
            seq_of=address(self._seq_of),
            sampled=address(self._sampled),
            scratch=self._scratch.address,
            scratch_floats=self._scratch_floats,
        )

    def _run(self) -> None:
        checked = False
        while (ticket := self._queue.get()) is not None:
            try:
                if not checked:  # once: a dense plan's first step reads every weight
                    self._weights.check(self._views)
                    checked = True
                self._pack.run(
                    self._team.address, self._threads, self._calls, len(self._calls), ctypes.byref(ticket.raw)
                )
                ticket.ids = [self._sampled[slot] for slot in ticket.step.row_slots]
            except BaseException as problem:  # noqa: BLE001 - whoever waits for the ticket is told
                ticket.error = problem
            with self._lock:
                self._in_flight -= 1
                self._finished_rows = len(ticket.step.rows)
            ticket.done.set()
