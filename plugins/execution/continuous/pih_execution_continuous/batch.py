"""Shares -> the arrays of one step."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Ids

from pih_execution_continuous.sequence import Share
from pih_runtime.contracts import Pool
from pih_runtime.step import Step


def step_of(shares: Ids[Share], pool: Pool) -> Step:
    """One ragged batch. Ids not known yet are read from the sequence's sampling slot."""
    size = pool.page_size
    tables = [pool.pages(share.sequence.key) for share in shares]
    width = max(-(-(share.start + share.count) // size) for share in shares)
    ids, positions, slots = array("i"), array("i"), array("i")
    seq_start, page_table = array("i", [0]), array("i")
    rows, row_slots = array("i"), array("i")
    for share, pages in zip(shares, tables, strict=True):
        sequence, end = share.sequence, share.start + share.count
        ids.extend(sequence.ids[share.start : end])
        ids.extend([-(sequence.slot + 1)] * (end - max(share.start, len(sequence.ids))))
        positions.extend(range(share.start, end))
        slots.extend([pages[position // size] * size + position % size for position in range(share.start, end)])
        seq_start.append(len(ids))
        page_table.extend(pages[:width])
        page_table.extend([0] * (width - len(pages)))
        if share.wanted:
            rows.append(len(ids) - 1)
            row_slots.append(sequence.slot)
    return Step(
        ids=ids,
        positions=positions,
        seq_start=seq_start,
        page_table=page_table,
        pages_per_seq=width,
        slots=slots,
        rows=rows,
        row_slots=row_slots,
        sampling=tuple(share.sequence.request.sampling for share in shares if share.wanted),
    )
