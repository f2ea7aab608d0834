"""Memory planning: values that are never alive together share bytes of the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pih_runtime.plan import DTYPE_BYTES, Buffer, Call, Limits
from pih_steps.lower.graph import Value

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Life:
    """A value's size and its calls, first to last; it may share bytes only with values of other calls."""

    name: str
    nbytes: int
    first: int
    last: int


def lives(calls: Sequence[Call], values: Mapping[str, Value], limits: Limits) -> list[Life]:
    """When each value is first and last touched, in order of first touch."""
    touched: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        for operand in call.operands:
            if operand.buffer:
                touched.setdefault(operand.buffer, []).append(index)
    counts = {"T": limits.tokens, "R": limits.seqs}
    return [
        Life(name, counts[values[name].rows] * row_bytes(values[name]), indices[0], indices[-1])
        for name, indices in touched.items()
    ]


def row_bytes(value: Value) -> int:
    """Distance between rows: each begins aligned."""
    return _aligned(value.columns * DTYPE_BYTES[value.dtype])


def assign(items: Sequence[Life]) -> dict[str, int]:
    """An offset for each value: the largest first, each as low as those that live beside it allow."""
    placed: list[tuple[int, int, Life]] = []
    for item in sorted(items, key=lambda life: (-life.nbytes, life.first, life.name)):
        at = 0
        for begin, end, other in sorted(placed, key=lambda entry: entry[:2]):
            together = item.first <= other.last and other.first <= item.last
            if together and begin < at + item.nbytes and at < end:
                at = _aligned(end)
        placed.append((at, at + item.nbytes, item))
    return {item.name: at for at, _, item in placed}


def plan_buffers(
    calls: Sequence[Call], values: Mapping[str, Value], limits: Limits
) -> tuple[tuple[Buffer, ...], tuple[Call, ...], int]:
    """Buffers, the calls on them, and the arena's size; values of one form and place are one buffer."""
    items = lives(calls, values, limits)
    offsets = assign(items)
    buffers: dict[tuple[object, ...], Buffer] = {}
    home: dict[str, str] = {}
    names: set[str] = set()
    for item in items:
        value = values[item.name]
        form = (value.rows, value.columns, value.dtype, offsets[item.name])
        if form not in buffers:
            name = _fresh(item.name, names)
            buffers[form] = Buffer(name, value.rows, value.columns, value.dtype, row_bytes(value), offsets[item.name])
            names.add(name)
        home[item.name] = buffers[form].name
    moved = tuple(
        replace(call, operands=tuple(replace(o, buffer=home[o.buffer]) if o.buffer else o for o in call.operands))
        for call in calls
    )
    arena = max((offsets[item.name] + item.nbytes for item in items), default=0)
    return tuple(buffers.values()), moved, _aligned(arena)


def _fresh(value: str, taken: set[str]) -> str:
    """The value's name without its layer, numbered where that is taken."""
    head, _, tail = value.partition(".")
    label = tail if head.isdigit() and tail else value
    number, name = 1, label
    while name in taken:
        number += 1
        name = f"{label}~{number}"
    return name


def _aligned(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT
