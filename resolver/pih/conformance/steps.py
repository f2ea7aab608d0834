"""What a case runs, one step after the other: ragged, as large as the limits, far into the context.

A cache's slot is read only after a step has written it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from pih_runtime.plan import Limits
from pih_runtime.step import Sampling, Step

LIMITS = Limits(tokens=48, seqs=12, context=640)  # past the tiles of kernels: 32 tokens, 8 rows, 512 positions
PAGE_SIZE, PAGES = 16, 44
_GREEDY = Sampling()
_BLOCKS = LIMITS.context // PAGE_SIZE
_LONG = [(17 * block + 5) % _BLOCKS for block in range(_BLOCKS)]  # the pages of a whole context, in no order
Part = tuple[list[int], int, list[int]]  # of a sequence: ids, first position, pages


def ragged(vocab: int) -> Iterator[Step]:
    """Two prefills, then decodes that go on from what was sampled, one across a page's end; then the largest step."""
    a, b = [7, 2], [11, 5]
    first = [0, 1, vocab - 1, 3, 4]
    yield step([(first, 0, a), ([5, 2, 6], 0, b)], [7, 4])
    yield step([([-2], 5, a), ([-1], 3, b)], [0, 1])
    for start in (6, 12):
        yield step([([0, 1, 2, 11, 12, 13], start, a)], [5, 0, 1, 2])
    yield step([([-1, 3], 18, a), ([vocab - 1], 4, b)], [2, 1])
    yield largest(vocab)


def largest(vocab: int) -> Step:
    """As many tokens and rows as the limits allow, of three sequences; rows in no order."""
    ids = _ids(LIMITS.tokens, vocab)
    rows = [47, 0, 20, 21, 46, 8, 31, 32, 15, 16, 40, 7]
    return step([(ids[:21], 0, [7, 2]), (ids[21:47], 0, [11, 5]), (ids[47:], 0, [PAGES - 1, 1])], rows)


def far(vocab: int) -> Iterator[Step]:
    """As `ragged`, then the last positions of the context."""
    yield from ragged(vocab)
    yield step([([3, 1, vocab - 1], LIMITS.context - 3, _LONG)], [2, 0])


def long(vocab: int) -> Iterator[Step]:
    """As `far`, where the context is read: each page is written by a sequence of its own, then they are one's."""
    yield from ragged(vocab)
    together = LIMITS.tokens // PAGE_SIZE
    for start in range(0, _BLOCKS, together):
        pages = range(start, min(start + together, _BLOCKS))
        yield step([(_ids(PAGE_SIZE, vocab, page), 0, [page]) for page in pages], [])
    yield step([([3, 1], LIMITS.context - 2, _LONG), ([vocab - 1], 300, _LONG[::-1])], [1, 2])


def sampled(vocab: int) -> Iterator[Step]:
    """Greedy with ties (the zero row), then temperature with every filter, alone and together; then all in one step."""
    hows = (
        Sampling(),
        Sampling(1.0, seed=1),
        Sampling(0.7, top_k=5, seed=2),
        Sampling(1.3, top_p=0.8, seed=3),
        Sampling(1.0, min_p=0.1, seed=4),
        Sampling(0.9, top_k=19, top_p=0.9, min_p=0.02, seed=(1 << 63) + 5),
        Sampling(1.0, top_k=1, seed=6),
    )
    for index, how in enumerate(hows):
        ids = [0, 3 + index, vocab - 1, 4 + index]
        yield step([(ids, index, [3])], [0, 1, 2, 3], (how,) * 4)
    rows = list(range(LIMITS.seqs))
    yield step([(_ids(LIMITS.seqs, vocab), 0, [3])], rows, tuple(hows[row % len(hows)] for row in rows))


def step(parts: Sequence[Part], rows: list[int], how: tuple[Sampling, ...] = ()) -> Step:
    """rows: wanted tokens, their slots in the same order from 0. how: of each row, greedy where not said."""
    ids, positions, starts, slots = array("i"), array("i"), array("i", [0]), array("i")
    for own, first, pages in parts:
        for position, token in enumerate(own, first):
            ids.append(token)
            positions.append(position)
            slots.append(pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE)
        starts.append(len(ids))
    table = array("i", [page for _, _, pages in parts for page in pages])
    wanted = array("i", range(len(rows)))
    sampling = how or (_GREEDY,) * len(rows)
    return Step(ids, positions, starts, table, len(parts[0][2]), slots, array("i", rows), wanted, sampling)


def _ids(count: int, vocab: int, start: int = 0) -> list[int]:
    return [(7 * (start * count + number) + 3) % vocab for number in range(count)]
