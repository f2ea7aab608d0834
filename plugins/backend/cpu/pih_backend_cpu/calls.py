"""From a plan to the pack's call table: every operand an address, every call a kernel and a number of shares."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from pih_backend_cpu.pack import CCall, COperand, Pack, symbol_address
from pih_runtime.operands import places
from pih_runtime.plan import Buffer, Call, Plan

# Calls long enough that a thread which lost its core should leave shares to the others.
_LONG_OPS = frozenset({"linear", "attention"})
_SHARES_PER_THREAD = 4
# Up to so many values another call is done sooner than a second thread would hear of it.
_SHORT_VALUES = 4096


def call_table(
    plan: Plan, pack: Pack, threads: int, arena: int, caches: Mapping[str, int], weight: Callable[[str], int]
) -> ctypes.Array[CCall]:
    """arena: its address; caches: the address of each; weight: the address of one."""
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    place = places(plan, arena, caches, weight)
    table = (CCall * len(plan.calls))()
    for entry, call in zip(table, plan.calls, strict=True):
        entry.kernel = symbol_address(pack, call.symbol)
        entry.wanted = _runs_over_wanted_rows(call, buffers)
        if call.op in _LONG_OPS:
            entry.parts = threads * _SHARES_PER_THREAD
        else:
            entry.parts = scratch_shares(plan, threads) if call.op == "sample" else threads
            entry.alone = _SHORT_VALUES // next(operand.columns for operand in call.operands if operand.buffer)
        for index, operand in enumerate(call.operands):
            found = place(operand)
            entry.operand[index] = COperand(found.address, found.stride, found.columns)
    return table


def scratch_shares(plan: Plan, threads: int) -> int:
    """How many shares of a call that needs scratch may run at once: sampling is shared by row."""
    return min(threads, plan.limits.seqs)


def _runs_over_wanted_rows(call: Call, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the call's first view has a row for each wanted row, not for each token."""
    return any(buffers[operand.buffer].rows == "R" for operand in call.operands[:1] if operand.buffer)
