"""Weight formats: how many values a block holds and how many bytes it takes.

What a format's bytes mean is said beside its packing (`pack`). Imported by everything here.
"""

from __future__ import annotations

from math import prod

from pih_runtime.errors import BuildError

# format → (values in a block, bytes of a block). Blocks lie along the last dimension.
BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q4_1": (32, 20),
    "q8_0": (32, 34),
    "int8": (1, 1),
}


def head_bytes(format_: str) -> int:
    """Bytes before a row's blocks: the scale that the whole row has in common."""
    return 4 if format_ == "int8" else 0


def bits(format_: str) -> float:
    """Bits of one value, its share of the block's scales included; a row's own scale hardly counts."""
    values, size = BLOCKS[format_]
    return 8 * size / values


def row_bytes(format_: str, columns: int, where: str) -> int:
    """Bytes of one row of `columns` values; raises BuildError where blocks do not fit."""
    values, size = BLOCKS[format_]
    if columns % values:
        raise BuildError(
            f"rows of {columns} values are no whole number of {format_} blocks of {values}",
            where=where,
            fix="take a checkpoint whose tensors have whole blocks",
        )
    return head_bytes(format_) + columns // values * size


def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """A tensor seen as rows x columns: a vector is one row, leading dimensions are stacked."""
    return prod(shape[:-1]), shape[-1]


def tensor_bytes(format_: str, shape: tuple[int, ...], where: str) -> int:
    """Bytes of a whole tensor as its checkpoint stores it."""
    rows, columns = matrix(shape)
    return rows * row_bytes(format_, columns, where)
