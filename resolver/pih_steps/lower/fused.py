"""Calls that follow each other become one, where the pack has a kernel that does them together.

What is computed stays the same; what the fused kernel leaves unwritten of it must be of no use to any later call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pih_runtime.plan import Call, Operand
from pih_steps.lower import bounds
from pih_steps.lower.fuse import overlap
from pih_steps.lower.report import MODES, Fused


@dataclass(frozen=True, slots=True)
class Bound:
    """A call, the figures that its constants come from, and the least exact type that its sums may pass through."""

    call: Call
    figures: Mapping[str, int]
    mode: str


@dataclass(frozen=True, slots=True)
class Joined:
    """What takes the place of `count` calls: a call, its kernel and that one's constants in the template's order."""

    call: Call
    kernel: Fused
    constants: Mapping[str, int]
    count: int


def match(calls: Sequence[Bound], at: int, kernels: Sequence[Fused]) -> Joined | None:
    """The first kernel that does the calls from `at` on in one; None where each stands alone."""
    for kernel in kernels:
        found, later = calls[at : at + len(kernel.ops)], calls[at + len(kernel.ops) :]
        if tuple(item.call.op for item in found) == kernel.ops and _fits(found, later, kernel):
            operands = _operands(found)
            constants = {name.rpartition(".")[2]: _figure(found, name) for name in kernel.constants}
            symbol = "_".join([kernel.template, *(f"{name}{value}" for name, value in constants.items())])
            call = Call("+".join(kernel.ops), symbol, tuple(operands[index] for index in kernel.operands), {})
            return Joined(call, kernel, constants, len(found))
    return None


def _fits(calls: Sequence[Bound], later: Sequence[Bound], kernel: Fused) -> bool:
    operands = _operands(calls)
    return (
        all(operands[first] == operands[second] for first, second in kernel.same)
        and all(_figure(calls, name) >= 0 for name in kernel.constants)
        and all(_figure(calls, name) == value for name, value in kernel.equal.items())
        and all(_figure(calls, name) % number == 0 for name, number in kernel.multiple.items())
        and not bounds.past(_named(calls, kernel.most), kernel.most)
        and all(MODES.index(kernel.mode) >= MODES.index(item.mode) for item in calls)
        and not any(overlap(operands[index], operand) for index in kernel.dropped for operand in _operands(later))
    )


def _named(calls: Sequence[Bound], most: Mapping[str, int]) -> dict[str, int]:
    """The figures that bounds are of."""
    return {name: _figure(calls, name) for term in most for name in bounds.names(term)}


def _operands(calls: Sequence[Bound]) -> list[Operand]:
    return [operand for item in calls for operand in item.call.operands]


def _figure(calls: Sequence[Bound], name: str) -> int:
    """A figure in which all calls that have it agree, or as 'i.name' that of call i; else -1, which nothing is."""
    index, _, plain = name.rpartition(".")
    found = {item.figures[plain] for item in ([calls[int(index)]] if index else calls) if plain in item.figures}
    return found.pop() if len(found) == 1 else -1
