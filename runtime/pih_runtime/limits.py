"""Checks of a step before kernels see it: a bad step is an error, never a stray read or write."""

from __future__ import annotations

from array import array
from collections.abc import Set as AbstractSet

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Plan
from pih_runtime.step import Step


def check_step(step: Step, plan: Plan, sampled_slots: AbstractSet[int]) -> None:
    """Raises WorkerError where a size, id, position, page or slot is out of the plan's limits.

    sampled_slots: those whose last sampled id exists, or will when earlier steps have run.
    """
    limits = plan.limits
    tokens, seqs, wanted = len(step.ids), len(step.seq_start) - 1, len(step.rows)
    _count("tokens", tokens, 1, limits.tokens)
    _count("sequences", seqs, 1, limits.seqs)
    _count("wanted rows", wanted, 0, limits.seqs)
    page_size = min((cache.page_size for cache in plan.caches), default=1)
    _count("pages a sequence", step.pages_per_seq, 0, -(-limits.context // page_size))
    for name, values, length in (
        ("positions", step.positions, tokens),
        ("slots", step.slots, tokens),
        ("page_table", step.page_table, seqs * step.pages_per_seq),
        ("row_slots", step.row_slots, wanted),
        ("sampling", step.sampling, wanted),
    ):
        if len(values) != length:
            raise WorkerError(f"step: {name} has {len(values)} entries, not {length}")
    for name, ints in _arrays(step):
        if ints.typecode != "i":
            raise WorkerError(f"step: {name} holds {ints.typecode!r}, not C ints")
    starts = step.seq_start
    if starts[0] != 0 or starts[-1] != tokens or any(starts[i] >= starts[i + 1] for i in range(seqs)):
        raise WorkerError("step: seq_start does not rise from 0 to the number of tokens")
    pages = min((cache.pages for cache in plan.caches), default=0)
    _values("ids", step.ids, -limits.seqs, plan.vocab)
    _values("positions", step.positions, 0, limits.context)
    _values("rows", step.rows, 0, tokens)
    _values("row_slots", step.row_slots, 0, limits.seqs)
    if plan.caches:
        _values("positions", step.positions, 0, step.pages_per_seq * page_size)
        _values("page_table", step.page_table, 0, pages)
        _values("slots", step.slots, 0, pages * page_size)
    if len(set(step.row_slots)) != wanted:
        raise WorkerError("step: two wanted rows share a sampling slot")
    if min(step.ids) < 0:
        for token in step.ids:
            if token < 0 and -token - 1 not in sampled_slots:
                raise WorkerError(f"step: nothing was sampled in slot {-token - 1} yet")


def _arrays(step: Step) -> tuple[tuple[str, array[int]], ...]:
    names = ("ids", "positions", "seq_start", "page_table", "slots", "rows", "row_slots")
    return tuple((name, getattr(step, name)) for name in names)


def _count(name: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        raise WorkerError(f"step: {count} {name}, the plan takes {least} to {most}")


def _values(name: str, values: array[int], least: int, end: int) -> None:
    if values and (min(values) < least or max(values) >= end):
        raise WorkerError(f"step: {name} must lie in {least}..{end - 1}, got {min(values)}..{max(values)}")
