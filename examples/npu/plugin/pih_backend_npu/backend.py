"""The running backend: an arena and caches in its device's memory, and a plan's calls one after the other."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pih_backend_npu import collectives, kernels, ops
from pih_backend_npu.batch import Batch, batch_of
from pih_backend_npu.device import Device
from pih_backend_npu.memory import Layer, View, rows_of
from pih_runtime.contracts import Rank, Weights
from pih_runtime.errors import WorkerError
from pih_runtime.plan import Call, Operand, Plan
from pih_runtime.step import Step

MOST_IN_FLIGHT = 2


class Backend:
    """`contracts.Backend`; a step is computed when it is submitted. rank: its end of the group, None where alone."""

    def __init__(self, plan: Plan, weights: Weights, device: Device, rank: Rank | None) -> None:
        if plan.ranks != (rank.size if rank else 1):
            raise WorkerError(f"the plan is of {plan.ranks} ranks", where="plan", fix="build the bundle again")
        self.plan, self._rank = plan, rank
        own = rank.rank if rank else 0
        self._weights = {weight.name: rows_of(weight, weights.tensor(weight.stored(own))) for weight in plan.weights}
        self._pool = device.pool
        self._arena = self._pool.take(plan.arena_bytes, "activations")
        self._buffers = {buffer.name: buffer for buffer in plan.buffers}
        self._caches = {
            cache.name: (cache, self._pool.take(cache.nbytes, f"cache {cache.name}")) for cache in plan.caches
        }
        self._sampled = [-1] * plan.limits.seqs
        self._logits: list[array[float]] = []
        self._results: dict[int, list[int]] = {}
        self._tickets = 0
        self._stopped = False
        self._run_by = ops.RUN | {"npu_rms_norm": kernels.rms_norm, "npu_attention": kernels.attention}

    def submit(self, step: Step) -> int:
        """Run a step; its result waits for `wait`. Raises WorkerError past the plan's limits."""
        if self._stopped:
            raise WorkerError("the backend has stopped")
        if len(self._results) >= MOST_IN_FLIGHT:
            raise WorkerError(f"{MOST_IN_FLIGHT} steps are in flight already")
        batch = batch_of(step, self.plan, self._sampled)
        ids: list[int] = []
        for call in self.plan.calls:
            ids = self._run(call, batch) or ids
        for slot, token in zip(step.row_slots, ids, strict=True):
            self._sampled[slot] = token
        self._tickets += 1
        self._results[self._tickets] = ids
        return self._tickets

    def wait(self, ticket: object) -> list[int]:
        """The sampled id of each wanted row, in order."""
        if not isinstance(ticket, int) or ticket not in self._results:
            raise WorkerError("not a ticket of this backend that is still waited for")
        return self._results.pop(ticket)

    def logits(self) -> list[memoryview]:
        """Logits of the wanted rows of the last finished step, each [V] float32; none after `stop`."""
        return [memoryview(row) for row in self._logits]

    def stop(self) -> None:
        """Give the memory back. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        for nbytes in (self.plan.arena_bytes, *(cache.nbytes for cache in self.plan.caches)):
            self._pool.give_back(nbytes)
        self._weights.clear()
        self._caches.clear()
        self._arena = memoryview(b"")
        self._logits = []

    def _run(self, call: Call, batch: Batch) -> Sequence[int]:
        operands = [self._operand(operand, batch) for operand in call.operands]
        if call.op == "sample":
            self._logits = [array("f", row) for row in operands[0]]
            return ops.sample(batch, self._logits)
        if self._rank and call.op in collectives.RUN:
            collectives.RUN[call.op](self._rank, *operands)
        else:
            self._run_by[call.symbol](batch, call.attrs, *operands)
        return ()

    def _operand(self, operand: Operand, batch: Batch) -> View | Layer:
        if operand.weight:
            return self._weights[operand.weight]
        if operand.cache:
            return Layer(*self._caches[operand.cache], operand.layer)
        buffer = self._buffers[operand.buffer]
        count = len(batch.ids) if buffer.rows == "T" else len(batch.step.rows)
        starts = (buffer.offset + row * buffer.row_bytes + operand.column * 4 for row in range(count))
        return [self._arena[start : start + operand.columns * 4].cast("f") for start in starts]
