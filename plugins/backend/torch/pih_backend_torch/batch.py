"""A step as tensors, checked against the plan's limits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Plan
from pih_runtime.step import Step


@dataclass(frozen=True, slots=True)
class Batch:
    """ids have last sampled ones filled in; pages [S, P]."""

    step: Step
    tokens: int
    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    rows: torch.Tensor
    pages: torch.Tensor


def batch_of(step: Step, plan: Plan, sampled: Sequence[int]) -> Batch:
    """Raises WorkerError where the step does not fit the plan."""
    limits, seqs, tokens = plan.limits, len(step.seq_start) - 1, len(step.ids)
    if not 0 < tokens <= limits.tokens or not 0 < seqs <= limits.seqs or len(step.rows) > limits.seqs:
        raise WorkerError(
            f"a step of {tokens} tokens, {seqs} sequences, {len(step.rows)} rows is past the plan's {limits}",
            where="step",
        )
    ids = [token if token >= 0 else sampled[-token - 1] for token in step.ids]
    _within("ids", ids, plan.vocab)
    _within("positions", step.positions, limits.context)
    _within("rows", step.rows, tokens)
    _within("row_slots", step.row_slots, limits.seqs)
    smallest = min((cache.page_size for cache in plan.caches), default=1)
    _within("pages_per_seq", (step.pages_per_seq,), -(-limits.context // smallest) + 1)
    for cache in plan.caches:
        _within("page_table", step.page_table, cache.pages)
        _within("slots", step.slots, cache.pages * cache.page_size)
        _within("positions", step.positions, step.pages_per_seq * cache.page_size)
    return Batch(
        step,
        tokens,
        torch.tensor(ids),
        _tensor(step.positions),
        _tensor(step.slots),
        _tensor(step.rows),
        _tensor(step.page_table).view(seqs, step.pages_per_seq),
    )


def _within(name: str, values: Sequence[int], end: int) -> None:
    if values and not (min(values) >= 0 and max(values) < end):
        raise WorkerError(f"{name} must lie in 0..{end - 1}, got {min(values)}..{max(values)}", where="step")


def _tensor(values: array[int]) -> torch.Tensor:
    return torch.tensor(values.tolist(), dtype=torch.int64)
