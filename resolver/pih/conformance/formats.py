"""Weights for the suite: made-up values in each storage format, and the bytes of each layout that is known here."""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

Rows = list[list[float]]
_GROUP = 32


@dataclass(frozen=True, slots=True)
class Made:
    """Made-up weights: bytes as a pack reads them, and the values that they stand for."""

    data: bytes
    values: Rows


def f32(value: float) -> float:
    """The nearest float32."""
    return array("f", [value])[0]


def f32s(values: Iterable[float]) -> list[float]:
    """The nearest float32 of each."""
    return array("f", values).tolist()


def bf16_bits(value: float) -> int:
    """Rounded to nearest even."""
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def bf16(value: float) -> float:
    """The nearest bf16."""
    return float(struct.unpack("<f", struct.pack("<I", bf16_bits(value) << 16))[0])


def made(
    rows: int, columns: int, form: str, layout: str, seed: int, edges: bool = True, factor: float = 1.0
) -> Made | None:
    """Weights of a format in a layout; None where the suite does not know that pair.

    edges: the first rows hold zeros, large and tiny values. factor: of values that are not in blocks.
    """
    rng = random.Random(seed)  # noqa: S311 - test data
    if form in ("q4_1", "q8_0"):
        return _blocks(rows, columns, form, layout, rng)
    scales = {0: 0.0, 1: 1e4, 2: 1e-12} if edges else {}
    rounded = {"f32": f32s, "bf16": _bf16s, "f16": _f16s}.get(form)
    if rounded is None:
        return None
    values = [rounded(rng.gauss(0, 1) * scales.get(row, factor) for _ in range(columns)) for row in range(rows)]
    order = list(range(columns))
    if layout == "pair16" and columns % _GROUP == 0:
        order = [base + half * 16 + i for base in range(0, columns, 32) for i in range(16) for half in (0, 1)]
    elif layout != "rows":
        return None
    flat = [row[column] for row in values for column in order]
    return Made(_stored(flat, form), values)


def _bf16s(values: Iterable[float]) -> list[float]:
    return [*map(bf16, values)]


def _f16s(values: Iterable[float]) -> list[float]:
    return [*map(_f16, values)]


def _f16(value: float) -> float:
    return float(struct.unpack("<e", struct.pack("<e", max(-6e4, min(6e4, value))))[0])


def _stored(flat: list[float], form: str) -> bytes:
    if form == "f32":
        return array("f", flat).tobytes()
    if form == "bf16":
        return array("H", map(bf16_bits, flat)).tobytes()
    return struct.pack(f"<{len(flat)}e", *flat)


def _blocks(rows: int, columns: int, form: str, layout: str, rng: random.Random) -> Made | None:
    """Blocks of 32 columns with a scale, and a minimum where 4 bits are unsigned; the first row's scales are 0."""
    if columns % _GROUP or layout not in ("rows", "tile16"):
        return None
    low, high = (0, 15) if form == "q4_1" else (-127, 127)
    count = columns // _GROUP
    padded = rows if layout == "rows" else math.ceil(rows / 16) * 16
    integers = [[rng.randint(low, high) if row < rows else 0 for _ in range(columns)] for row in range(padded)]
    scales = [[_f16(rng.random() * 2 / high if 0 < row < rows else 0) for _ in range(count)] for row in range(padded)]
    least = [
        [_f16(-rng.random()) if form == "q4_1" and row < rows else 0.0 for _ in range(count)] for row in range(padded)
    ]
    values = [
        [f32(scales[row][i // _GROUP] * integers[row][i] + least[row][i // _GROUP]) for i in range(columns)]
        for row in range(rows)
    ]
    store = _row_blocks if layout == "rows" else _tiles
    return Made(store(integers, scales, least, form), values)


def _row_blocks(integers: list[list[int]], scales: Rows, least: Rows, form: str) -> bytes:
    parts = []
    for numbers, factors, minima in zip(integers, scales, least, strict=True):
        for block, (factor, minimum) in enumerate(zip(factors, minima, strict=True)):
            own = numbers[block * _GROUP : (block + 1) * _GROUP]
            if form == "q8_0":
                parts.append(struct.pack("<e32b", factor, *own))
            else:
                parts.append(struct.pack("<ee16B", factor, minimum, *(own[i] | own[16 + i] << 4 for i in range(16))))
    return b"".join(parts)


def _tiles(integers: list[list[int]], scales: Rows, least: Rows, form: str) -> bytes:
    """16 rows side by side; vectors of 4 columns of each row."""
    parts = []
    for tile in range(0, len(integers), 16):
        rows = range(tile, tile + 16)
        for block in range(len(scales[0])):
            start = block * _GROUP
            parts.append(struct.pack("<16e", *(scales[row][block] for row in rows)))
            if form == "q8_0":
                numbers = [integers[r][start + 4 * v + j] for v in range(8) for r in rows for j in range(4)]
                parts.append(struct.pack("<512b", *numbers))
                continue
            parts.append(struct.pack("<16e", *(least[row][block] for row in rows)))
            low = [(r, start + 4 * v + j) for v in range(4) for r in rows for j in range(4)]
            parts.append(bytes(integers[r][c] | integers[r][c + 16] << 4 for r, c in low))
    return b"".join(parts)
