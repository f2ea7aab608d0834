"""The table of a bundle's components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pih.columns import aligned

if TYPE_CHECKING:
    from pih.inspect.bundle import Component, Contents


def components(rows: Sequence[Component], held: Contents) -> str:
    """component, version, unpacked, licence, reason; sizes in MB, the largest first.

    What is shipped is known of layers, each of which is compressed as a whole: the last line has their sum, where the
    form of the bundle has it. Without licences there is no such column.
    """
    head = ("component", "version", "unpacked", "licence", "reason")
    cells = [(row.name, row.version, _mb(row.size), row.licence or "", _short(row.reason)) for row in rows]
    shipped = f", {_mb(held.compressed)} MB as it is shipped" if held.compressed else ""
    total = ("total", "", _mb(held.size), "", f"MB{shipped}")
    known = [True, True, True, any(row.licence for row in rows), True]
    table = [[cell for cell, keep in zip(row, known, strict=True) if keep] for row in (head, *cells, total)]
    return "\n".join(aligned(table, numbers=frozenset({2})))


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f}"


def _short(reason: str) -> str:
    """The end of a chain says what needs it; `pih why` has the whole chain."""
    last = reason.rsplit("→", 1)[-1].strip()
    return last if len(last) <= 72 else last[:71] + "…"
