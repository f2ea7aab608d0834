"""What the suite runs: for each kernel of a report, plans around its op in several shapes, and steps for them.

A backend shows only ids and logits, so every case ends in `gather` and `sample` over what it tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pih.conformance import steps
from pih.conformance.drafts import Draft, Entry, UnknownError
from pih.conformance.formats import f32
from pih_runtime.plan import Operand, Plan
from pih_runtime.step import Step

# Of what a row's largest value may be wrong, by the type that its sums pass through.
TOLERANCE = {"exact": 3e-7, "f64": 3e-6, "f32": 3e-5, "f16": 4e-3, "bf16": 3e-2}
_EPS = f32(1e-6)


@dataclass(frozen=True, slots=True)
class Case:
    """A plan with its weights and steps. symbol: of the kernel it is about."""

    name: str
    plan: Plan
    draft: Draft
    steps: tuple[Step, ...]
    tolerance: float


@dataclass(frozen=True, slots=True)
class Untried:
    """A kernel that the suite has no case for, and why."""

    name: str
    why: str


def cases(report: Mapping[str, Any], isa: str) -> Iterator[Case | Untried]:
    """Every kernel of the report for this ISA, in each of its shapes; and its scalar reference."""
    for entry in report.get("kernel", ()):
        for reference in (False, True):
            if entry.get("reference") if reference else entry["template"] and isa in entry["isa"]:
                yield from _of(entry, report, isa, reference=reference)


def _of(entry: Entry, report: Mapping[str, Any], isa: str, *, reference: bool) -> Iterator[Case | Untried]:
    name = " ".join(filter(None, (entry["op"], entry["weight"], "reference" if reference else "")))
    if entry["op"] not in _MAKERS:
        return  # quantize: tried with the linear that asks for it
    tried, why = 0, ""
    for label, make, run in _MAKERS[entry["op"]](entry):
        draft = Draft(report, isa, reference)
        try:
            plan = draft.finish(make(draft), entry["op"])
        except UnknownError as unknown:
            why = str(unknown)
            continue
        tried += 1
        tolerance = TOLERANCE[entry["mode"]] * (10 if entry["activation"] != "f32" else 1)
        yield Case(f"{name} {label}", plan, draft, tuple(run(plan.vocab)), tolerance)
    if not tried:
        yield Untried(name, why)


Made = Iterator[tuple[str, Callable[[Draft], Operand], Callable[[int], Iterator[Step]]]]


def _embed(entry: Entry) -> Made:
    for size in (20, 32, 96):

        def make(draft: Draft, size: int = size) -> Operand:
            y = draft.buffer(size)
            draft.call(entry, (draft.weight((size, size), entry), y))
            return y

        yield f"[{size},{size}]", make, steps.far


def _rms_norm(entry: Entry) -> Made:
    for columns, groups in ((20, 1), (64, 1), (64, 4), (96, 3)):

        def make(draft: Draft, columns: int = columns, groups: int = groups) -> Operand:
            x, y = draft.embed(columns, columns), draft.buffer(columns)
            draft.call(entry, (x, draft.weight((columns // groups,), entry), y), eps=_EPS)
            return y

        yield f"{columns} columns, {groups} groups", make, steps.far


def _linear(entry: Entry) -> Made:
    for n, k, accumulate in ((20, 64, False), (48, 32, False), (32, 96, True), (20, 576, False)):

        def make(draft: Draft, n: int = n, k: int = k, accumulate: bool = accumulate) -> Operand:
            x = draft.embed(k, n)
            y = draft.embed(n, n) if accumulate else draft.buffer(n)
            if entry["activation"] != "f32":
                form = next(item for item in draft.report["activation"] if item["name"] == entry["activation"])
                quantized = draft.buffer(k // form["group"] * form["bytes_per_group"], dtype="u8")
                fitting = [
                    item
                    for item in draft.report["kernel"]
                    if item["op"] == "quantize" and item["activation"] == form["name"] and draft.isa in item["isa"]
                ]
                if not fitting:
                    raise UnknownError(f"quantize to {form['name']}, which it asks for")
                draft.call(fitting[0], (x, quantized), format=form["name"])
                x = quantized
            draft.call(entry, (x, draft.weight((n, k), entry, edges=False), y), accumulate=accumulate)
            return y

        yield f"[{n},{k}]" + (" accumulate" if accumulate else ""), make, steps.far


def _rope_table(entry: Entry) -> Made:
    def make(draft: Draft) -> Operand:
        y = draft.buffer(32)
        draft.call(entry, (draft.weight((16,), entry), y))
        return y

    yield "32 columns", make, steps.far


def _rope(entry: Entry) -> Made:
    for columns, dim, pairs in ((64, 16, "half"), (64, 32, "adjacent"), (24, 12, "half")):

        def make(draft: Draft, columns: int = columns, dim: int = dim, pairs: str = pairs) -> Operand:
            x, table = draft.embed(columns, columns), draft.buffer(dim)
            frequencies = draft.kernel("rope_table")
            draft.call_helper(frequencies, (draft.weight((dim // 2,), frequencies), table))
            draft.call(entry, (x, table, x), head_dim=dim, pairs=pairs)
            return x

        yield f"{columns} columns, heads of {dim}, {pairs}", make, steps.far


@dataclass(frozen=True, slots=True)
class _Heads:
    """Of an attention. q, v: what made-up queries and values are multiplied by. long: tried over a whole context."""

    heads: int
    kv_heads: int
    dim: int
    dtype: str
    scale: float
    long: bool = False
    q: float = 1.0
    v: float = 1.0

    def __str__(self) -> str:
        large = ", large values" if self.v > 1 else ""
        return f"{self.heads} heads, {self.kv_heads} kv heads of {self.dim}, cache {self.dtype}{large}"


# A scale is 1/sqrt(dim) in most models, and not in all. The last one's scores are past what exp can take.
_HEADS = (
    _Heads(2, 1, 16, "f32", 0.25, long=True),
    _Heads(4, 2, 16, "bf16", 0.4, long=True),
    _Heads(3, 3, 32, "f32", 0.11),
    _Heads(2, 1, 64, "bf16", 0.125),
    _Heads(2, 2, 16, "f32", 0.25, q=400, v=1000),
)


def _attention(entry: Entry) -> Made:
    for shape in _HEADS:
        run = steps.long if shape.long and entry["op"] == "attention" else steps.ragged
        yield str(shape), partial(_cached, entry=entry, shape=shape), run


def _cached(draft: Draft, entry: Entry, shape: _Heads) -> Operand:
    """`kv_write`, then attention; the case is about one of the two."""
    rows, dim = shape.heads * shape.dim, shape.dim
    q = draft.embed(rows, rows, edges=False, factor=shape.q)
    k, v = (draft.embed(shape.kv_heads * dim, rows, edges=False, factor=factor) for factor in (1.0, shape.v))
    cache, y = draft.cache(shape.kv_heads, dim, shape.dtype), draft.buffer(rows)
    calls: dict[str, tuple[tuple[Operand, ...], dict[str, float]]] = {
        "kv_write": ((k, v, cache), {"head_dim": dim}),
        "attention": ((q, cache, y), {"head_dim": dim, "scale": f32(shape.scale)}),
    }
    for op, (operands, attrs) in calls.items():
        if op == entry["op"]:
            draft.call(entry, operands, **attrs)
        else:
            draft.call_helper(draft.kernel(op), operands, **attrs)
    return y


def _silu_mul(entry: Entry) -> Made:
    for columns in (20, 64):

        def make(draft: Draft, columns: int = columns) -> Operand:
            gate, up, y = draft.embed(columns, columns), draft.embed(columns, columns), draft.buffer(columns)
            draft.call(entry, (gate, up, y))
            return y

        yield f"{columns} columns", make, steps.far


def _add(entry: Entry) -> Made:
    for columns in (20, 64):

        def make(draft: Draft, columns: int = columns) -> Operand:
            x, y = draft.embed(columns, columns), draft.embed(columns, columns)
            draft.call(entry, (x, y))
            return y

        yield f"{columns} columns", make, steps.far


def _gather(_entry: Entry) -> Made:
    """`finish` gathers, so there is nothing to add."""
    for columns in (20, 32):
        yield f"{columns} columns", partial(_square, size=columns), steps.far


def _sample(_entry: Entry) -> Made:
    for size in (32, 96):
        yield f"{size} logits", partial(_square, size=size), steps.sampled


def _square(draft: Draft, size: int) -> Operand:
    return draft.embed(size, size)


_MAKERS: dict[str, Callable[[Entry], Made]] = {
    "embed": _embed,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "rope_table": _rope_table,
    "rope": _rope,
    "kv_write": _attention,
    "attention": _attention,
    "silu_mul": _silu_mul,
    "add": _add,
    "gather": _gather,
    "sample": _sample,
}
