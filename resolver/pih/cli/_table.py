"""Tables of text: columns as wide as their widest cell, two spaces between."""

from __future__ import annotations

from collections.abc import Sequence

from pih.inspect.bundle import Component, Contents


def aligned(rows: Sequence[Sequence[str]], numbers: frozenset[int] = frozenset()) -> list[str]:
    """One line for each row; the last column is not padded. numbers: columns that are set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def cell(index: int, text: str) -> str:
        return text.rjust(widths[index]) if index in numbers else text.ljust(widths[index])

    return ["  ".join(cell(index, text) for index, text in enumerate(row)).rstrip() for row in rows]


def components(rows: Sequence[Component], held: Contents) -> str:
    """component, version, unpacked, compressed, reason; sizes in MB, the largest first."""
    head = ("component", "version", "unpacked", "compressed", "reason")
    cells = [
        (row.name, row.version, f"{row.size / 1e6:.2f}", f"{row.compressed / 1e6:.2f}", _short(row.reason))
        for row in rows
    ]
    total = ("total", "", f"{held.size / 1e6:.2f}", f"{held.compressed / 1e6:.2f}", "MB")
    return "\n".join(aligned([head, *cells, total], numbers=frozenset({2, 3})))


def _short(reason: str) -> str:
    """The end of a chain says what needs it; `pih why` has the whole chain."""
    last = reason.rsplit("→", 1)[-1].strip()
    return last if len(last) <= 72 else last[:71] + "…"
