"""Tables of text: columns as wide as their widest cell, two spaces between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pih.inspect.bundle import Component, Contents


def aligned(rows: Sequence[Sequence[str]], numbers: frozenset[int] = frozenset()) -> list[str]:
    """One line for each row; the last column is not padded. numbers: columns that are set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def cell(index: int, text: str) -> str:
        return text.rjust(widths[index]) if index in numbers else text.ljust(widths[index])

    return ["  ".join(cell(index, text) for index, text in enumerate(row)).rstrip() for row in rows]


def components(rows: Sequence[Component], held: Contents) -> str:
    """component, version, unpacked, compressed, licence, reason; sizes in MB, the largest first.

    Columns that nothing is known for are left out.
    """
    head = ("component", "version", "unpacked", "compressed", "licence", "reason")
    cells = [
        (row.name, row.version, _mb(row.size), _mb(row.compressed), row.licence or "", _short(row.reason))
        for row in rows
    ]
    total = ("total", "", _mb(held.size), _mb(held.compressed), "", "MB")
    known = [True, True, True, held.compressed > 0, any(row.licence for row in rows), True]
    table = [[cell for cell, keep in zip(row, known, strict=True) if keep] for row in (head, *cells, total)]
    return "\n".join(aligned(table, numbers=frozenset({2, 3} if known[3] else {2})))


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f}"


def _short(reason: str) -> str:
    """The end of a chain says what needs it; `pih why` has the whole chain."""
    last = reason.rsplit("→", 1)[-1].strip()
    return last if len(last) <= 72 else last[:71] + "…"
