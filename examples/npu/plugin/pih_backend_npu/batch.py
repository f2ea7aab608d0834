"""A step, checked against the plan's limits: a bad step is an error, never a stray read or write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Plan
from pih_runtime.step import Step


@dataclass(frozen=True, slots=True)
class Batch:
    """ids: with those filled in that were sampled last."""

    step: Step
    ids: tuple[int, ...]


def batch_of(step: Step, plan: Plan, sampled: Sequence[int]) -> Batch:
    """Raises WorkerError where the step does not fit the plan."""
    limits, tokens, seqs = plan.limits, len(step.ids), len(step.seq_start) - 1
    if not 0 < tokens <= limits.tokens or not 0 < seqs <= limits.seqs or len(step.rows) > limits.seqs:
        raise WorkerError(f"a step of {tokens} tokens, {seqs} sequences and {len(step.rows)} rows is past {limits}")
    _within("ids", step.ids, -limits.seqs, plan.vocab)
    ids = tuple(token if token >= 0 else sampled[-token - 1] for token in step.ids)
    _within("ids", ids, 0, plan.vocab)
    _within("positions", step.positions, 0, limits.context)
    _within("rows", step.rows, 0, tokens)
    _within("row_slots", step.row_slots, 0, limits.seqs)
    smallest = min((cache.page_size for cache in plan.caches), default=1)
    _within("pages_per_seq", (step.pages_per_seq,), 0, -(-limits.context // smallest) + 1)
    for cache in plan.caches:
        _within("page_table", step.page_table, 0, cache.pages)
        _within("slots", step.slots, 0, cache.pages * cache.page_size)
        _within("positions", step.positions, 0, step.pages_per_seq * cache.page_size)
    return Batch(step, ids)


def _within(name: str, values: Sequence[int], least: int, end: int) -> None:
    if values and not (min(values) >= least and max(values) < end):
        raise WorkerError(f"step: {name} must lie in {least}..{end - 1}, got {min(values)}..{max(values)}")
