"""Ops that this device runs as anyone would, by the text of `pih_runtime.ops`; outputs are written in place."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import add as add_
from operator import mul
from typing import Any

from pih_backend_npu.batch import Batch
from pih_backend_npu.memory import Layer, View
from pih_runtime.ops import uniform
from pih_runtime.step import Sampling

Attrs = Mapping[str, Any]


def embed(batch: Batch, _attrs: Attrs, table: View, y: View) -> None:
    """Rows of the table."""
    for row, token in zip(y, batch.ids, strict=True):
        row[:] = table[token]


def rope_table(batch: Batch, _attrs: Attrs, inv_freq: View, y: View) -> None:
    """Cosines, then sines."""
    for row, position in zip(y, batch.step.positions, strict=True):
        angles = array("f", [position * frequency for frequency in inv_freq[0]])
        row[:] = array("f", [*map(math.cos, angles), *map(math.sin, angles)])


def rope(_batch: Batch, attrs: Attrs, x: View, table: View, _y: View) -> None:
    """Rotate pairs of each head, in place."""
    dim = attrs["head_dim"]
    half = dim // 2
    places = [(i, i + half) if attrs["pairs"] == "half" else (2 * i, 2 * i + 1) for i in range(half)]
    for row, turn in zip(x, table, strict=True):
        for base in range(0, len(row), dim):
            for i, (first, second) in enumerate(places):
                a, b, cos, sin = row[base + first], row[base + second], turn[i], turn[half + i]
                row[base + first], row[base + second] = a * cos - b * sin, b * cos + a * sin


def kv_write(batch: Batch, attrs: Attrs, k: View, v: View, cache: Layer) -> None:
    """Each token's keys and values to its slot."""
    dim = attrs["head_dim"]
    for side, rows in enumerate((k, v)):
        for slot, row in zip(batch.step.slots, rows, strict=True):
            for head in range(len(row) // dim):
                cache.write(side, slot, head, row[head * dim : (head + 1) * dim])


def silu_mul(_batch: Batch, _attrs: Attrs, gate: View, up: View, y: View) -> None:
    """The gate's share of `up`."""
    for row, gates, ups in zip(y, gate, up, strict=True):
        shares = [value / (1 + math.exp(-value)) if value > -700 else 0.0 for value in gates]
        row[:] = array("f", map(mul, shares, ups))


def linear(_batch: Batch, attrs: Attrs, x: View, weight: View, y: View) -> None:
    """A dot product for each row of the weight."""
    for source, target in zip(x, y, strict=True):
        own = source.tolist()
        dots = array("f", [sum(map(mul, own, row)) for row in weight])
        target[:] = array("f", map(add_, dots, target)) if attrs["accumulate"] else dots


def add(_batch: Batch, _attrs: Attrs, x: View, y: View) -> None:
    """To what is there; between ranks only."""
    for target, row in zip(y, x, strict=True):
        target[:] = array("f", map(add_, target, row))


def gather(batch: Batch, _attrs: Attrs, x: View, y: View) -> None:
    """The wanted rows."""
    for target, row in zip(y, batch.step.rows, strict=True):
        target[:] = x[row]


def sample(batch: Batch, logits: Sequence[array]) -> list[int]:
    """An id for each wanted row."""
    positions = [batch.step.positions[row] for row in batch.step.rows]
    return [_one(*item) for item in zip(logits, batch.step.sampling, positions, strict=True)]


def _one(logits: array, how: Sampling, position: int) -> int:
    if how.temperature == 0:
        return logits.index(max(logits))
    order = sorted(range(len(logits)), key=lambda token: -logits[token])  # stable: equal logits by their ids
    kept = order[: how.top_k] if how.top_k else order
    weights = _softmax([logits[token] / how.temperature for token in kept])
    if how.top_p < 1:
        enough = next((i for i, total in enumerate(accumulate(weights)) if total >= how.top_p), len(weights))
        weights = weights[: enough + 1]
    sums = list(accumulate(weight for weight in weights if weight >= how.min_p * weights[0]))
    draw = uniform(how.seed, position) * sums[-1]
    return kept[next(i for i, total in enumerate(sums) if total > draw)]


def _softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    terms = [math.exp(score - top) for score in scores]
    total = sum(terms)
    return [term / total for term in terms]


# What a plan calls by: the report's templates, which here have no constants to add.
RUN: dict[str, Callable[..., None]] = {
    "embed_f32": embed,
    "embed_bf16": embed,
    "rope_table": rope_table,
    "rope": rope,
    "kv_write": kv_write,
    "silu_mul_reference": silu_mul,
    "linear_f32": linear,
    "linear_bf16": linear,
    "add": add,
    "gather": gather,
}
