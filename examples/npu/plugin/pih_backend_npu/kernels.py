"""The ops that this device runs in its own way; the others are those of `ops`.

rms_norm: the device has a reciprocal square root of 12 bits, and two steps of Newton after it.
attention: one pass over the cache with a running maximum, so scores are never all in memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import pairwise
from operator import mul
from typing import Any

from pih_backend_npu.batch import Batch
from pih_backend_npu.memory import Layer, View


def rms_norm(_batch: Batch, attrs: Mapping[str, Any], x: View, weight: View, y: View) -> None:
    """Each group of columns by its root mean square."""
    scale, size = weight[0], len(weight[0])
    for source, target in zip(x, y, strict=True):
        for start in range(0, len(source), size):
            own = source[start : start + size].tolist()
            factor = _reciprocal_root(sum(map(mul, own, own)) / size + attrs["eps"])
            target[start : start + size] = array("f", [v * factor * w for v, w in zip(own, scale, strict=True)])


def attention(batch: Batch, attrs: Mapping[str, Any], q: View, cache: Layer, y: View) -> None:
    """Each token over its own sequence up to itself, a position at a time."""
    step, dim, size = batch.step, attrs["head_dim"], cache.cache.page_size
    for sequence, (start, stop) in enumerate(pairwise(step.seq_start)):
        pages = step.page_table[sequence * step.pages_per_seq : (sequence + 1) * step.pages_per_seq]
        for token in range(start, stop):
            slots = [pages[p // size] * size + p % size for p in range(step.positions[token] + 1)]
            heads = len(q[token]) // dim
            for head in range(heads):
                place = slice(head * dim, (head + 1) * dim)
                query = [attrs["scale"] * value for value in q[token][place]]
                y[token][place] = array("f", _attend(query, cache, slots, head // (heads // cache.cache.kv_heads)))


def _attend(query: list[float], cache: Layer, slots: list[int], head: int) -> list[float]:
    """The running maximum rises: what was summed before shrinks by as much."""
    top, total, out = -math.inf, 0.0, [0.0] * len(query)
    for slot in slots:
        score = sum(map(mul, query, cache.read(0, slot, head)))
        higher = max(top, score)
        keep, share = math.exp(top - higher), math.exp(score - higher)
        total = total * keep + share
        out = [old * keep + share * value for old, value in zip(out, cache.read(1, slot, head), strict=True)]
        top = higher
    return [value / total for value in out]


def _reciprocal_root(value: float) -> float:
    exact, exponent = math.frexp(1 / math.sqrt(value))
    guess = math.ldexp(round(exact * 4096) / 4096, exponent)
    for _ in range(2):
        guess *= 1.5 - 0.5 * value * guess * guess
    return guess
