"""A step as the device reads it: one block of memory, so that one copy brings it, at places that never change."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from pih_backend_cuda.pack import CSampling
from pih_runtime.plan import Plan
from pih_runtime.step import Step

_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Offset of each array in the block, in the order of `CStep`, and the block's size."""

    offsets: dict[str, int]
    nbytes: int


def layout_of(plan: Plan) -> Layout:
    """Room for the plan's largest step."""
    limits = plan.limits
    page = min((cache.page_size for cache in plan.caches), default=1)
    counts = {
        "counts": 4,
        "ids": limits.tokens,
        "positions": limits.tokens,
        "seq_start": limits.seqs + 1,
        "page_table": limits.seqs * -(-limits.context // page),
        "slots": limits.tokens,
        "rows": limits.seqs,
        "row_slots": limits.seqs,
        "sampling": limits.seqs * ctypes.sizeof(CSampling) // 4,
    }
    offsets, at = {}, 0
    for name, count in counts.items():
        offsets[name] = at
        at += -(-count * 4 // _ALIGNMENT) * _ALIGNMENT
    return Layout(offsets, at)


def write(step: Step, layout: Layout, address: int) -> None:
    """Lay a checked step out at an address of the host."""
    counts = (len(step.ids), len(step.seq_start) - 1, len(step.rows), step.pages_per_seq)
    (ctypes.c_int32 * 4).from_address(address)[:] = counts
    for name in ("ids", "positions", "seq_start", "page_table", "slots", "rows", "row_slots"):
        values = getattr(step, name)
        ctypes.memmove(address + layout.offsets[name], values.buffer_info()[0], len(values) * values.itemsize)
    sampling = (CSampling * max(len(step.sampling), 1)).from_address(address + layout.offsets["sampling"])
    for place, item in zip(sampling, step.sampling, strict=False):
        place.temperature, place.top_k, place.top_p, place.min_p = (
            item.temperature,
            item.top_k,
            item.top_p,
            item.min_p,
        )
        place.seed = item.seed & ((1 << 64) - 1)
