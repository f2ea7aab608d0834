"""The backend: an arena and caches in one torch device's memory, and a plan's calls run one after the other.

Buffers are views of the arena at the plan's own offsets, so that a plan whose buffers overlap shows here too.
"""

from __future__ import annotations

from array import array

import torch

from pih_backend_torch import ops, ranks
from pih_backend_torch.batch import Batch, batch_of
from pih_backend_torch.formats import as_float32
from pih_backend_torch.sample import sample
from pih_runtime.contracts import Rank, Weights
from pih_runtime.errors import WorkerError
from pih_runtime.plan import Call, Operand, Plan
from pih_runtime.step import Step

_CACHE_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_MOST_IN_FLIGHT = 2


class TorchBackend:
    """`contracts.Backend`; a step is computed when it is submitted. rank: this one's end, where there are several."""

    def __init__(self, plan: Plan, weights: Weights, rank: Rank | None = None) -> None:
        if plan.ranks != (rank.size if rank else 1):
            raise WorkerError(f"the plan is of {plan.ranks} ranks", where="plan", fix="build the bundle again")
        self.plan = plan
        self._rank = rank
        own = rank.rank if rank else 0
        self._weights = {one.name: as_float32(one, weights.tensor(one.stored(own))) for one in plan.weights}
        self._arena = torch.zeros(plan.arena_bytes, dtype=torch.uint8)
        self._buffers = {buffer.name: buffer for buffer in plan.buffers}
        self._caches = {
            cache.name: torch.zeros(
                cache.layers,
                2,
                cache.pages,
                cache.kv_heads,
                cache.page_size,
                cache.head_dim,
                dtype=_CACHE_DTYPES[cache.dtype],
            )
            for cache in plan.caches
        }
        self._sampled = [-1] * plan.limits.seqs
        self._results: dict[int, list[int]] = {}
        self._tickets = 0
        self._logits = torch.empty(0, plan.vocab)
        self._stopped = False

    def submit(self, step: Step) -> int:
        """Run a step; its result waits for `wait`."""
        if self._stopped:
            raise WorkerError("the backend has stopped")
        if len(self._results) >= _MOST_IN_FLIGHT:
            raise WorkerError(f"{_MOST_IN_FLIGHT} steps are in flight already")
        batch = batch_of(step, self.plan, self._sampled)
        with torch.inference_mode():
            ids = [self._run(call, batch) for call in self.plan.calls][-1]
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
        return [memoryview(array("f", row.tolist())) for row in self._logits]

    def stop(self) -> None:
        """Give the memory back. A second call does nothing."""
        self._stopped = True
        self._weights.clear()
        self._caches.clear()
        self._arena = torch.empty(0, dtype=torch.uint8)
        self._logits = torch.empty(0, self.plan.vocab)

    def _run(self, call: Call, batch: Batch) -> list[int]:
        if call.op == "sample":
            self._logits = self._view(call.operands[0], batch).clone()
            return sample(self._logits, batch.step.sampling, [batch.step.positions[row] for row in batch.step.rows])
        inputs = [self._operand(operand, batch) for operand in call.operands]
        if self._rank and call.op in ranks.RUN:
            ranks.RUN[call.op](self._rank, *inputs)
        else:
            ops.RUN[call.op](batch, call.attrs, *inputs)
        return []

    def _operand(self, operand: Operand, batch: Batch) -> torch.Tensor:
        if operand.weight:
            return self._weights[operand.weight]
        if operand.cache:
            return self._caches[operand.cache][operand.layer]
        return self._view(operand, batch)

    def _view(self, operand: Operand, batch: Batch) -> torch.Tensor:
        """The step's rows of a buffer view, in place."""
        buffer = self._buffers[operand.buffer]
        if buffer.dtype != "f32":
            raise WorkerError(f"buffer {buffer.name} is {buffer.dtype}", where="plan", fix="lower for backend/torch")
        rows = batch.tokens if buffer.rows == "T" else len(batch.step.rows)
        end = buffer.offset + rows * buffer.row_bytes
        matrix = self._arena[buffer.offset : end].view(torch.float32).view(rows, buffer.row_bytes // 4)
        return matrix[:, operand.column : operand.column + operand.columns]
