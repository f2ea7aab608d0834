"""Where a plan's operands lie, for a backend that hands addresses to kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pih_runtime.errors import WorkerError
from pih_runtime.plan import DTYPE_BYTES, Operand, Plan


@dataclass(frozen=True, slots=True)
class Place:
    """An operand's first byte; bytes from row to row of a buffer, from K to V of a cache; values of a buffer's row."""

    address: int
    stride: int = 0
    columns: int = 0


def places(
    plan: Plan, arena: int, caches: Mapping[str, int], weight: Callable[[str], int]
) -> Callable[[Operand], Place]:
    """What finds an operand; the arena and caches are given by address, a weight by what knows its address by name."""
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    sides = {cache.name: cache.nbytes // cache.layers // 2 for cache in plan.caches}

    def place(operand: Operand) -> Place:
        if operand.weight:
            return Place(weight(operand.weight))
        if operand.cache:
            side = sides[operand.cache]
            return Place(caches[operand.cache] + operand.layer * 2 * side, side)
        buffer = buffers[operand.buffer]
        start = arena + buffer.offset + operand.column * DTYPE_BYTES[buffer.dtype]
        return Place(start, buffer.row_bytes, operand.columns)

    return place


def logits(plan: Plan, arena: int) -> Place:
    """Where the logits of the wanted rows lie, float32. Raises WorkerError where the plan computes none."""
    sampled = next((call.operands[0] for call in plan.calls if call.op == "sample"), None)
    if sampled is None:
        raise WorkerError("the plan computes no logits")
    weights: dict[str, int] = {}  # they are never one
    return places(plan, arena, {}, weights.__getitem__)(sampled)
