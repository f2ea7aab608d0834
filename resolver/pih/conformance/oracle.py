"""The op vocabulary of `pih_runtime.ops` in plain Python: slow, of doubles, and easy to read against its text.

A plan runs here call by call on lists; each op's result is rounded to float32, as its buffer would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

from pih.conformance.formats import Rows, bf16, f32, f32s
from pih_runtime.ops import uniform
from pih_runtime.plan import Call, Operand, Plan
from pih_runtime.step import Sampling, Step


class Oracle:
    """A plan with its weights' values, its caches, and what was sampled last."""

    def __init__(self, plan: Plan, weights: Mapping[str, Rows]) -> None:
        self._plan, self._weights = plan, weights
        self._buffers: dict[str, Rows] = {}
        # of a group, a layer and a slot: keys and values, each [kv_heads][head_dim]
        self._cache: dict[tuple[str, int, int], tuple[Rows, Rows]] = {}
        self._sampled: dict[int, int] = {}
        self._logits: Rows = []

    def run(self, step: Step) -> tuple[list[int], Rows]:
        """The sampled ids and the logits of the wanted rows."""
        for buffer in self._plan.buffers:
            count = len(step.ids) if buffer.rows == "T" else len(step.rows)
            self._buffers[buffer.name] = [[0.0] * buffer.columns for _ in range(count)]
        ids: list[int] = []
        for call in self._plan.calls:
            if call.op == "sample":
                ids = self._sample(call, step)
            elif call.op == "quantize":  # exact here: what it loses is within the linear's tolerance
                self._buffers[call.operands[1].buffer] = self._rows(call.operands[0])
            else:
                self._call(call, step)
        return ids, self._logits

    def follow(self, step: Step, ids: list[int]) -> None:
        """These ids were sampled: what the tried backend says, so that a near tie does not part the two."""
        self._sampled.update(zip(step.row_slots, ids, strict=True))

    def _rows(self, operand: Operand) -> Rows:
        if operand.weight:
            return self._weights[operand.weight]
        rows = self._buffers[operand.buffer]
        buffer = next(buffer for buffer in self._plan.buffers if buffer.name == operand.buffer)
        if buffer.dtype == "u8":
            return [list(row) for row in rows]
        return [row[operand.column : operand.column + operand.columns] for row in rows]

    def _call(self, call: Call, step: Step) -> None:
        attrs, operands = call.attrs, call.operands
        if call.op == "kv_write":
            self._write(call, step)
            return
        inputs = [self._rows(item) for item in operands[:-1] if not item.cache]
        if call.op == "embed":
            found = [token if token >= 0 else self._sampled[-token - 1] for token in step.ids]
            result = [list(inputs[0][token]) for token in found]
        elif call.op == "rms_norm":
            result = [_norm(row, inputs[1][0], attrs["eps"]) for row in inputs[0]]
        elif call.op == "linear":
            result = [[_dot(row, weight) for weight in inputs[1]] for row in inputs[0]]
            if attrs["accumulate"]:
                before = self._rows(operands[-1])
                result = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(result, before, strict=True)]
        elif call.op == "rope_table":
            angles = [[f32(position * frequency) for frequency in inputs[0][0]] for position in step.positions]
            result = [[*map(math.cos, row), *map(math.sin, row)] for row in angles]
        elif call.op == "rope":
            result = [_turned(row, table, attrs) for row, table in zip(*inputs, strict=True)]
        elif call.op == "attention":
            result = self._attention(inputs[0], call, step)
        elif call.op == "silu_mul":
            result = [[_silu(g) * u for g, u in zip(*pair, strict=True)] for pair in zip(*inputs, strict=True)]
        elif call.op == "add":
            rows = zip(inputs[0], self._rows(operands[-1]), strict=True)
            result = [[a + b for a, b in zip(*pair, strict=True)] for pair in rows]
        else:
            assert call.op == "gather", call.op
            result = [inputs[0][row] for row in step.rows]
        target = operands[-1]
        for row, values in zip(self._buffers[target.buffer], result, strict=True):
            row[target.column : target.column + target.columns] = f32s(values)

    def _write(self, call: Call, step: Step) -> None:
        k, v, target = call.operands
        cache = next(cache for cache in self._plan.caches if cache.name == target.cache)
        rounded = bf16 if cache.dtype == "bf16" else f32
        for slot, *sides in zip(step.slots, self._rows(k), self._rows(v), strict=True):
            keys, values = (
                [[*map(rounded, row[at : at + cache.head_dim])] for at in range(0, len(row), cache.head_dim)]
                for row in sides
            )
            self._cache[target.cache, target.layer, slot] = keys, values

    def _attention(self, queries: Rows, call: Call, step: Step) -> Rows:
        group, dim = call.operands[1], call.attrs["head_dim"]
        cache = next(cache for cache in self._plan.caches if cache.name == group.cache)
        result = []
        for sequence, (start, stop) in enumerate(pairwise(step.seq_start)):
            first = sequence * step.pages_per_seq
            pages = step.page_table[first : first + step.pages_per_seq]
            for token in range(start, stop):
                size, seen = cache.page_size, range(step.positions[token] + 1)
                slots = [self._cache[group.cache, group.layer, pages[p // size] * size + p % size] for p in seen]
                heads = len(queries[token]) // dim
                row: list[float] = []
                for head in range(heads):
                    own, place = queries[token][head * dim : (head + 1) * dim], head // (heads // cache.kv_heads)
                    row += _attend(own, call.attrs["scale"], [(k[place], v[place]) for k, v in slots])
                result.append(row)
        return result

    def _sample(self, call: Call, step: Step) -> list[int]:
        self._logits = self._rows(call.operands[0])
        positions = [step.positions[row] for row in step.rows]
        return [one(*item) for item in zip(self._logits, step.sampling, positions, strict=True)]


def one(logits: list[float], how: Sampling, position: int) -> int:
    """The id that `sample` takes for one row."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if how.temperature == 0:
        return order[0]
    kept = order[: how.top_k] if how.top_k else order
    terms = [math.exp((logits[token] - logits[kept[0]]) / how.temperature) for token in kept]
    total = math.fsum(terms)
    if how.top_p < 1:
        sums = list(accumulate(terms))
        terms = terms[: next((i + 1 for i, part in enumerate(sums) if part >= how.top_p * total), len(terms))]
    terms = [term for term in terms if term >= how.min_p * terms[0]]
    sums = list(accumulate(terms))
    draw = uniform(how.seed, position) * sums[-1]
    return kept[next(i for i, part in enumerate(sums) if part > draw)]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    assert len(a) == len(b)
    return math.fsum(map(mul, a, b))


def _attend(query: list[float], scale: float, seen: Sequence[tuple[list[float], list[float]]]) -> list[float]:
    scores = [scale * _dot(query, keys) for keys, _ in seen]
    most = max(scores)
    weights = [math.exp(score - most) for score in scores]
    total = math.fsum(weights)
    return [_dot(weights, column) / total for column in zip(*(values for _, values in seen), strict=True)]


def _norm(row: list[float], weight: list[float], eps: float) -> list[float]:
    size, result = len(weight), list[float]()
    for start in range(0, len(row), size):
        own = row[start : start + size]
        factor = 1 / math.sqrt(_dot(own, own) / size + eps)
        result += [x * factor * w for x, w in zip(own, weight, strict=True)]
    return result


def _turned(row: list[float], table: list[float], attrs: Mapping[str, Any]) -> list[float]:
    dim = attrs["head_dim"]
    half, result = dim // 2, list(row)
    for base in range(0, len(row), dim):
        for i in range(half):
            first, second = (i, i + half) if attrs["pairs"] == "half" else (2 * i, 2 * i + 1)
            a, b, cos, sin = row[base + first], row[base + second], table[i], table[half + i]
            result[base + first], result[base + second] = a * cos - b * sin, b * cos + a * sin
    return result


def _silu(value: float) -> float:
    return value / (1 + math.exp(-value)) if value > -700 else 0.0
