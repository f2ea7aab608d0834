"""The table of a bundle's components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pih.columns import aligned

if TYPE_CHECKING:
    from pih.inspect.bundle import Component, Contents


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
