"""From a plan to launches: every operand an address of the device, every call its entries and its rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pih_backend_cuda.pack import CCall, COperand, Launch, Pack
from pih_runtime.errors import WorkerError
from pih_runtime.operands import places
from pih_runtime.plan import Buffer, Call, Plan

TOKENS, WANTED = 0, 2  # which of a step's counts


@dataclass(frozen=True, slots=True)
class Bound:
    """A call: its arguments, which of the step's counts its rows are, its entries and the driver's handle of each."""

    arguments: CCall
    launches: tuple[Launch, ...]
    functions: tuple[ctypes.c_void_p, ...]

    def chosen(self, rows: int) -> int:
        """Index of the entry for so many rows."""
        return next(index for index, launch in enumerate(self.launches) if rows <= launch.most_rows)


def bind(
    plan: Plan,
    pack: Pack,
    arena: int,
    caches: Mapping[str, int],
    weights: Mapping[str, int],
    function: Callable[[str], ctypes.c_void_p],
) -> list[Bound]:
    """arena, caches, weights: addresses of the device. function: the handle of an entry."""
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    place = places(plan, arena, caches, weights.__getitem__)
    bound = []
    for call in plan.calls:
        launches = pack.launches.get(call.symbol, ())
        if not launches or launches[-1].most_rows < plan.limits.tokens:
            raise WorkerError(f"the kernel pack cannot run {call.symbol!r}, which the plan calls", fix="build it again")
        arguments = CCall(axis=_axis(call, buffers))
        for index, operand in enumerate(call.operands):
            found = place(operand)
            arguments.operand[index] = COperand(found.address, found.stride, found.columns)
        bound.append(Bound(arguments, launches, tuple(function(launch.entry) for launch in launches)))
    return bound


def _axis(call: Call, buffers: Mapping[str, Buffer]) -> int:
    """A call runs over the rows of what it writes, its last view."""
    last = [operand.buffer for operand in call.operands if operand.buffer][-1]
    return WANTED if buffers[last].rows == "R" else TOKENS
