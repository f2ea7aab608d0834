"""What the suite runs: for each kernel of a report, plans around its op in several shapes, and steps for them.

A backend shows only ids and logits, so every case ends in `gather` and `sample` over what it tests.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pih.conformance.drafts import LIMITS, PAGE_SIZE, Draft, Entry, UnknownError
from pih.conformance.formats import f32
from pih_runtime.plan import Operand, Plan
from pih_runtime.step import Sampling, Step

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
    for label, make in _MAKERS[entry["op"]](entry):
        draft = Draft(report, isa, reference)
        try:
            plan = draft.finish(make(draft), entry["op"])
        except UnknownError as unknown:
            why = str(unknown)
            continue
        tried += 1
        tolerance = TOLERANCE[entry["mode"]] * (10 if entry["activation"] != "f32" else 1)
        steps = _sampling_steps if entry["op"] == "sample" else _steps
        yield Case(f"{name} {label}", plan, draft, tuple(steps(plan.vocab)), tolerance)
    if not tried:
        yield Untried(name, why)


Made = Iterator[tuple[str, Callable[[Draft], Operand]]]


def _embed(entry: Entry) -> Made:
    for size in (20, 32, 96):

        def make(draft: Draft, size: int = size) -> Operand:
            y = draft.buffer(size)
            draft.call(entry, (draft.weight((size, size), entry), y))
            return y

        yield f"[{size},{size}]", make


def _rms_norm(entry: Entry) -> Made:
    for columns, groups in ((20, 1), (64, 1), (64, 4), (96, 3)):

        def make(draft: Draft, columns: int = columns, groups: int = groups) -> Operand:
            x, y = draft.embed(columns, columns), draft.buffer(columns)
            draft.call(entry, (x, draft.weight((columns // groups,), entry), y), eps=_EPS)
            return y

        yield f"{columns} columns, {groups} groups", make


def _linear(entry: Entry) -> Made:
    for n, k, accumulate in ((20, 64, False), (48, 32, False), (32, 96, True)):

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

        yield f"[{n},{k}]" + (" accumulate" if accumulate else ""), make


def _rope_table(entry: Entry) -> Made:
    def make(draft: Draft) -> Operand:
        y = draft.buffer(32)
        draft.call(entry, (draft.weight((16,), entry), y))
        return y

    yield "32 columns", make


def _rope(entry: Entry) -> Made:
    for columns, dim, pairs in ((64, 16, "half"), (64, 32, "adjacent"), (24, 12, "half")):

        def make(draft: Draft, columns: int = columns, dim: int = dim, pairs: str = pairs) -> Operand:
            x, table = draft.embed(columns, columns), draft.buffer(dim)
            frequencies = draft.kernel("rope_table")
            draft.call_helper(frequencies, (draft.weight((dim // 2,), frequencies), table))
            draft.call(entry, (x, table, x), head_dim=dim, pairs=pairs)
            return x

        yield f"{columns} columns, heads of {dim}, {pairs}", make


def _attention(entry: Entry) -> Made:
    for heads, kv_heads, dim, dtype in ((2, 1, 16, "f32"), (4, 2, 16, "bf16"), (3, 3, 32, "f32")):

        def make(
            draft: Draft, heads: int = heads, kv_heads: int = kv_heads, dim: int = dim, dtype: str = dtype
        ) -> Operand:
            rows, attention, write = heads * dim, draft.kernel("attention"), draft.kernel("kv_write")
            q = draft.embed(rows, rows, edges=False)
            k, v = (draft.embed(kv_heads * dim, rows, edges=False) for _ in range(2))
            cache, y = draft.cache(kv_heads, dim, dtype), draft.buffer(rows)
            own = entry["op"] == "kv_write"
            (draft.call if own else draft.call_helper)(entry if own else write, (k, v, cache), head_dim=dim)
            (draft.call_helper if own else draft.call)(
                attention if own else entry, (q, cache, y), head_dim=dim, scale=f32(dim**-0.5)
            )
            return y

        yield f"{heads} heads, {kv_heads} kv heads of {dim}, cache {dtype}", make


def _silu_mul(entry: Entry) -> Made:
    for columns in (20, 64):

        def make(draft: Draft, columns: int = columns) -> Operand:
            gate, up, y = draft.embed(columns, columns), draft.embed(columns, columns), draft.buffer(columns)
            draft.call(entry, (gate, up, y))
            return y

        yield f"{columns} columns", make


def _add(entry: Entry) -> Made:
    for columns in (20, 64):

        def make(draft: Draft, columns: int = columns) -> Operand:
            x, y = draft.embed(columns, columns), draft.embed(columns, columns)
            draft.call(entry, (x, y))
            return y

        yield f"{columns} columns", make


def _gather(_entry: Entry) -> Made:
    """`finish` gathers, so there is nothing to add."""
    for columns in (20, 32):
        yield f"{columns} columns", partial(_square, size=columns)


def _sample(_entry: Entry) -> Made:
    for size in (32, 96):
        yield f"{size} logits", partial(_square, size=size)


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


def _step(sequences: list[tuple[list[int], int, list[int]]], rows: list[int], how: tuple[Sampling, ...]) -> Step:
    """sequences: (ids, first position, pages); rows: wanted tokens, their slots in the same order from 0."""
    ids, positions, starts, slots = array("i"), array("i"), array("i", [0]), array("i")
    for own, first, pages in sequences:
        for position, token in enumerate(own, first):
            ids.append(token)
            positions.append(position)
            slots.append(pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE)
        starts.append(len(ids))
    table = array("i", [page for _, _, pages in sequences for page in pages])
    wanted = array("i", range(len(rows)))
    return Step(ids, positions, starts, table, len(sequences[0][2]), slots, array("i", rows), wanted, how)


def _steps(vocab: int) -> Iterator[Step]:
    """Two ragged prefills, then decodes that go on from what was sampled, one across a page's end."""
    greedy = Sampling()
    a, b = [7, 2], [11, 5]
    first = [0, 1, vocab - 1, 3, 4]
    yield _step([(first, 0, a), ([5, 2, 6], 0, b)], [7, 4], (greedy, greedy))
    yield _step([([-2], 5, a), ([-1], 3, b)], [0, 1], (greedy, greedy))
    for start in (6, 12):
        yield _step([([0, 1, 2, 11, 12, 13], start, a)], [5, 0, 1, 2], (greedy,) * 4)
    yield _step([([-1, 3], 18, a), ([vocab - 1], 4, b)], [2, 1], (greedy, greedy))


def _sampling_steps(vocab: int) -> Iterator[Step]:
    """Greedy with ties (the zero row), then temperature with every filter, alone and together."""
    hows = (
        Sampling(),
        Sampling(1.0, seed=1),
        Sampling(0.7, top_k=5, seed=2),
        Sampling(1.3, top_p=0.8, seed=3),
        Sampling(1.0, min_p=0.1, seed=4),
        Sampling(0.9, top_k=19, top_p=0.9, min_p=0.02, seed=(1 << 63) + 5),
        Sampling(1.0, top_k=1, seed=6),
    )
    for index, how in enumerate(hows):
        ids = [0, 3 + index, vocab - 1, 4 + index]
        yield _step([(ids, index, [3])], [0, 1, 2, 3], (how,) * min(4, LIMITS.seqs))
