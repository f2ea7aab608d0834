"""The table of a bundle's components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pih.columns import aligned

if TYPE_CHECKING:
    from pih.inspect.bundle import Component, Contents


def components(rows: Sequence[Component], held: Contents, shares: Mapping[str, int] = MappingProxyType({})) -> str:
    """component, version, unpacked, compressed, licence, reason; sizes in MB, the largest first.

    shares: bytes by component, of the layers as they are shipped. Without them or licences there is no such column, and
    the last line has what is shipped where the form of the bundle has it.
    """
    head = ("component", "version", "unpacked", "compressed", "licence", "reason")
    cells = [
        (row.name, row.version, _mb(row.size), _mb(shares.get(row.name, 0)), row.licence, _short(row.reason))
        for row in rows
    ]
    shipped = f", {_mb(held.compressed)} MB as it is shipped" if held.compressed and not shares else ""
    total = ("total", "", _mb(held.size), _mb(held.compressed), "", f"MB{shipped}")
    known = [True, True, True, bool(shares), any(row.licence for row in rows), True]
    table = [[cell for cell, keep in zip(row, known, strict=True) if keep] for row in (head, *cells, total)]
    return "\n".join(aligned(table, numbers=frozenset({2, 3} if shares else {2})))


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f}"


def _short(reason: str) -> str:
    """The end of a chain says what needs it; `pih why` has the whole chain."""
    last = reason.rsplit("→", 1)[-1].strip()
    return last if len(last) <= 72 else last[:71] + "…"
