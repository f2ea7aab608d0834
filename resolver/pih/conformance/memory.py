"""Kind memory: pages are counted, none is two sequences' that did not compute the same, and what is full says so."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from pih.conformance.findings import BrokenError, Named
from pih.conformance.subject import Subject, running
from pih_runtime.contracts import Pool

_ROUNDS = 3000
_MOST_OPEN = 5


def checks(subject: Subject) -> Iterator[Named]:
    """Accounting and exhaustion in words, then everything at once at random against a model of the cache."""
    yield "pages: counted, and given back", partial(_counted, subject)
    yield "pages: too few are refused, and none taken", partial(_exhausted, subject)
    yield "pages: a prefix is reused only after the same ids", partial(_reused, subject)
    yield "pages: what is in them is what was computed", partial(_random, subject)


def _counted(subject: Subject) -> None:
    with running(subject) as pool:
        cache = subject.plan.caches[0]
        if (pool.pages_total, pool.page_size, pool.pages_free()) != (cache.pages, cache.page_size, cache.pages):
            raise BrokenError(
                f"the plan's cache has {cache.pages} pages of {cache.page_size}; the pool has {pool.pages_total} of "
                f"{pool.page_size}, {pool.pages_free()} of them free"
            )
        pool.begin(1, [1])
        for length, wanted in ((1, 1), (pool.page_size, 1), (pool.page_size + 1, 2)):
            if not pool.grow(1, length) or len(pool.pages(1)) != wanted:
                raise BrokenError(f"{length} positions have {len(pool.pages(1))} pages, not {wanted}")
            if pool.pages_free() != pool.pages_total - wanted:
                raise BrokenError(f"{wanted} of {pool.pages_total} pages are taken, {pool.pages_free()} are free")
        pool.end(1)
        if pool.pages_free() != pool.pages_total:
            raise BrokenError(f"all has ended, {pool.pages_free()} of {pool.pages_total} pages are free")


def _exhausted(subject: Subject) -> None:
    with running(subject) as pool:
        pool.begin(1, [1])
        pool.begin(2, [2])
        if not pool.grow(1, (pool.pages_total - 1) * pool.page_size):
            raise BrokenError("a sequence cannot have all pages but one")
        before = (list(pool.pages(2)), pool.pages_free())
        if pool.grow(2, 2 * pool.page_size) is not False:
            raise BrokenError("two pages are promised where there is one")
        if (list(pool.pages(2)), pool.pages_free()) != before:
            raise BrokenError("a refused `grow` has taken pages")
        if not pool.grow(2, pool.page_size):
            raise BrokenError("the last page cannot be had")
        pool.end(1)
        if not pool.grow(2, 2 * pool.page_size):
            raise BrokenError("pages that were given back cannot be had")


def _reused(subject: Subject) -> None:
    """Reuse is not asked for; where there is some it must be right."""
    with running(subject) as pool:
        size = pool.page_size
        ids = [number % 7 for number in range(2 * size)]
        pool.begin(1, ids)
        pool.grow(1, len(ids))
        first = list(pool.pages(1))
        pool.computed(1, ids)
        pool.end(1)
        for key, (asked, most) in enumerate(((ids, size), ([*ids, 1], 2 * size), ([9, *ids[1:], 1], 0)), 2):
            known = pool.begin(key, asked)
            if known % size or not 0 <= known <= most:
                raise BrokenError(f"of {len(asked)} ids {known} are said to be known: whole pages, at most {most} here")
            if list(pool.pages(key)) != first[: known // size]:
                raise BrokenError(f"{known} ids are known, but the pages are not those that they were computed in")
            pool.end(key)


def _random(subject: Subject) -> None:
    rng = random.Random(11)  # noqa: S311 - test data
    with running(subject) as pool:
        held: dict[int, list[int]] = {}
        content: dict[int, tuple[int, ...]] = {}  # page -> all ids up to its end
        for key in range(_ROUNDS):
            if len(held) == _MOST_OPEN or (held and rng.random() < 0.4):
                done = rng.choice(sorted(held))
                pool.end(done)
                del held[done]
                continue
            length = rng.randint(1, 4) * pool.page_size + rng.randint(-3, 3)
            ids = [rng.randint(0, 1) if at % pool.page_size == 0 else 0 for at in range(length)]
            _begin(pool, key, ids, content)
            held[key] = ids
            shared = set(pool.pages(key))
            if not pool.grow(key, length):
                pool.end(key)
                del held[key]
                continue
            _taken(pool, key, held, shared)
            for page in pool.pages(key):
                if page not in shared:
                    content.pop(page, None)
            for index, page in enumerate(pool.pages(key)[: length // pool.page_size]):
                content[page] = tuple(ids[: (index + 1) * pool.page_size])
            pool.computed(key, ids)
        for key in held:
            pool.end(key)
        if pool.pages_free() != pool.pages_total:
            raise BrokenError(f"all has ended, {pool.pages_free()} of {pool.pages_total} pages are free")


def _begin(pool: Pool, key: int, ids: Sequence[int], content: dict[int, tuple[int, ...]]) -> None:
    known = pool.begin(key, ids)
    if known % pool.page_size or not 0 <= known < len(ids):
        raise BrokenError(f"of {len(ids)} ids {known} are said to be known: whole pages, never all")
    for index, page in enumerate(pool.pages(key)):
        if content.get(page) != tuple(ids[: (index + 1) * pool.page_size]):
            raise BrokenError(f"page {page} is said to hold a prefix that was not computed there, or no more")


def _taken(pool: Pool, key: int, held: dict[int, list[int]], shared: set[int]) -> None:
    own = list(pool.pages(key))
    if len(set(own)) != len(own) or not all(0 <= page < pool.pages_total for page in own):
        raise BrokenError(f"a sequence has the pages {own} of {pool.pages_total}")
    for other in held.keys() - {key}:
        if both := (set(own) - shared) & set(pool.pages(other)):
            raise BrokenError(f"page {min(both)} is given to a sequence while another has it")
    used = {page for other in held for page in pool.pages(other)}
    if pool.pages_free() != pool.pages_total - len(used):
        raise BrokenError(f"{len(used)} of {pool.pages_total} pages are in use, {pool.pages_free()} are free")
