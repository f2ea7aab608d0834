"""Tables of text: columns as wide as their widest cell, two spaces between."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], numbers: frozenset[int] = frozenset()) -> list[str]:
    """One line for each row; the last column is not padded. numbers: columns that are set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def cell(index: int, text: str) -> str:
        return text.rjust(widths[index]) if index in numbers else text.ljust(widths[index])

    return ["  ".join(cell(index, text) for index, text in enumerate(row)).rstrip() for row in rows]
