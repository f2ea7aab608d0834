"""Kind memory: pages are counted, none is two sequences' that did not compute the same, and what is full says so."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pih.conformance.findings import BrokenError, Named
from pih.conformance.subject import Subject, running
from pih_runtime.contracts import Pool

_ROUNDS = 3000
_MOST_OPEN = 5
_VOCAB = 1 << 18  # as large as vocabularies are: ids differ in their high bits alone, too


def checks(subject: Subject) -> Iterator[Named]:
    """Accounting and exhaustion in words, then everything at once at random against a model of the cache."""
    plan = replace(subject.plan, vocab=_VOCAB)
    own = replace(subject, plan=plan)
    yield "pages: counted, and given back", partial(_counted, own)
    yield "pages: too few are refused, and none taken", partial(_exhausted, own)
    yield "pages: a prefix is reused only after the same ids", partial(_reused, own)
    yield "pages: each id of a prefix counts, and its place", partial(_distinct, own)
    yield "pages: what is in them is what was computed", partial(_random, own)
    yield "pages: two pools keep to themselves", partial(_apart, own)


def _counted(subject: Subject) -> None:
    with running(subject) as pool:
        cache = subject.plan.caches[0]
        if (pool.pages_total, pool.page_size, pool.pages_free()) != (cache.pages, cache.page_size, cache.pages):
            raise BrokenError(
                f"the plan's cache has {cache.pages} pages of {cache.page_size}; the pool has {pool.pages_total} of "
                f"{pool.page_size}, {pool.pages_free()} of them free"
            )
        pool.begin(1, [1])
        for length, wanted in ((1, 1), (pool.page_size, 1), (pool.page_size + 1, 2), (1, 2)):
            before = list(pool.pages(1))
            if not pool.grow(1, length) or len(pool.pages(1)) != wanted:
                raise BrokenError(f"{length} positions have {len(pool.pages(1))} pages, not {wanted}")
            if list(pool.pages(1))[: len(before)] != before:
                raise BrokenError("a sequence that grows has other pages than what it computed is in")
            if pool.pages_free() != pool.pages_total - wanted:
                raise BrokenError(f"{wanted} of {pool.pages_total} pages are taken, {pool.pages_free()} are free")
        pool.end(1)
        _all_free(pool)


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
        pool.computed(2, [2] * 2 * pool.page_size)
        pool.end(2)
        pool.begin(3, [3])
        if not pool.grow(3, pool.pages_total * pool.page_size):
            raise BrokenError("pages that nobody uses, a known prefix in some, cannot all be had")


def _reused(subject: Subject) -> None:
    """Reuse is not asked for; where there is some it must be right."""
    with running(subject) as pool:
        size = pool.page_size
        ids = [number % 7 for number in range(2 * size)]
        first = _computed(pool, 1, ids)
        for key, (asked, most) in enumerate(((ids, size), ([*ids, 1], 2 * size), ([9, *ids[1:], 1], 0)), 2):
            known = pool.begin(key, asked)
            if known % size or not 0 <= known <= most:
                raise BrokenError(f"of {len(asked)} ids {known} are said to be known: whole pages, at most {most} here")
            if list(pool.pages(key)) != first[: known // size]:
                raise BrokenError(f"{known} ids are known, but the pages are not those that they were computed in")
            pool.end(key)
        _all_free(pool)


def _distinct(subject: Subject) -> None:
    """What differs from a known prefix in one id, or the order of two, is another from there on."""
    rng = random.Random(5)  # noqa: S311 - test data
    with running(subject) as pool:
        size = pool.page_size
        ids = [rng.randrange(_VOCAB) for _ in range(3 * size)]
        pages, key = _computed(pool, 0, ids), 1
        for what, other in _others(ids, size):
            known = pool.begin(key, [*other, 1])
            same = next(at for at, (one, two) in enumerate(zip(ids, other, strict=True)) if one != two)
            if known > same or list(pool.pages(key)) != pages[: known // size]:
                raise BrokenError(f"{known} ids of a prefix are said to be known after {what}, which is at {same}")
            pool.end(key)
            key += 1


def _others(ids: Sequence[int], size: int) -> Iterator[tuple[str, list[int]]]:
    """Ids that are not these, with the difference in words: what a sum, or a cut, takes for them."""
    for at in range(len(ids)):
        for bit in range(_VOCAB.bit_length() - 1):
            yield f"bit {bit} of an id changed", _with(ids, {at: ids[at] ^ 1 << bit})
    for at in range(len(ids) - 1):
        one, two = ids[at : at + 2]
        yield "two ids changed places", _with(ids, {at: two, at + 1: one})
        yield "the same bit of two ids changed", _with(ids, {at: one ^ 1, at + 1: two ^ 1})
        more, less = (at, at + 1) if one < _VOCAB - 1 and two else (at + 1, at)
        yield "one id grew by what another lost", _with(ids, {more: ids[more] + 1, less: ids[less] - 1})
    for start in range(0, len(ids), size):
        page = ids[start : start + size]
        for what, other in (
            ("a page ran backwards", page[::-1]),
            ("a page turned by one id", [*page[1:], page[0]]),
            ("a page's ids were sorted", sorted(page)),
            ("all ids of a page were 0", [0] * size),
        ):
            yield what, [*ids[:start], *other, *ids[start + size :]]
    yield "two pages changed places", [*ids[size : 2 * size], *ids[:size], *ids[2 * size :]]
    yield "the last two pages changed places", [*ids[:size], *ids[2 * size :], *ids[size : 2 * size]]
    yield "a page came twice", [*ids[:size], *ids[:size], *ids[2 * size :]]


def _with(ids: Sequence[int], changed: dict[int, int]) -> list[int]:
    return [changed.get(at, token) for at, token in enumerate(ids)]


@dataclass(slots=True)
class _Sequence:
    """An open one of the model. done: leading ids that are computed."""

    ids: list[int]
    done: int
    pages: list[int] = field(default_factory=list)


def _random(subject: Subject) -> None:
    """Sequences that begin like others, are computed in parts, and end before or after their end."""
    rng = random.Random(11)  # noqa: S311 - test data
    with running(subject) as pool:
        held: dict[int, _Sequence] = {}
        content: dict[int, tuple[int, ...]] = {}  # page -> all ids up to its end
        seen: list[list[int]] = [[]]
        for key in range(_ROUNDS):
            if held and (len(held) == _MOST_OPEN or rng.random() < 0.6):
                own = rng.choice(sorted(held))
                if rng.random() < 0.4 or held[own].done == len(held[own].ids) or not _on(pool, own, held, content, rng):
                    pool.end(own)
                    del held[own]
            else:
                ids = _like(rng, rng.choice(seen), pool.page_size)
                seen = [*seen[-24:], ids]
                held[key] = _begun(pool, key, ids, content)
            _taken(pool, held)
        for key in held:
            pool.end(key)
        _all_free(pool)


def _like(rng: random.Random, other: Sequence[int], size: int) -> list[int]:
    """Ids that begin as others do, or as their second page does; perhaps but for one of them."""
    start = rng.choice((0, 0, 0, size))
    ids = list(other[start : rng.randrange(start, max(start, len(other)) + 1)])
    if ids and rng.random() < 0.3:
        ids[rng.randrange(len(ids))] ^= 1 << rng.randrange(_VOCAB.bit_length() - 1)
    more = rng.randint(1, 4) * size + rng.randint(-3, 3) - len(ids)
    return ids + [rng.randrange(_VOCAB) for _ in range(max(1, more))]


def _begun(pool: Pool, key: int, ids: list[int], content: dict[int, tuple[int, ...]]) -> _Sequence:
    known = pool.begin(key, ids)
    if known % pool.page_size or not 0 <= known < len(ids):
        raise BrokenError(f"of {len(ids)} ids {known} are said to be known: whole pages, never all")
    pages = list(pool.pages(key))
    if len(pages) * pool.page_size != known:
        raise BrokenError(f"{known} ids are said to be known, in {len(pages)} pages of {pool.page_size}")
    for index, page in enumerate(pages):
        if content.get(page) != tuple(ids[: (index + 1) * pool.page_size]):
            raise BrokenError(f"page {page} is said to hold a prefix that was not computed there, or no more")
    return _Sequence(ids, known, pages)


def _on(
    pool: Pool, key: int, held: dict[int, _Sequence], content: dict[int, tuple[int, ...]], rng: random.Random
) -> bool:
    """Compute some more of it; False where there are no pages for that."""
    own, size = held[key], pool.page_size
    end = min(len(own.ids), own.done + rng.randint(1, 2 * size))
    free, missing = pool.pages_free(), -(-end // size) - len(own.pages)
    if pool.grow(key, end) != (missing <= free):
        raise BrokenError(f"{free} pages are free; {missing} more are {'refused' if missing <= free else 'promised'}")
    if missing > free:
        return False
    pages = list(pool.pages(key))
    if pages[: len(own.pages)] != own.pages:
        raise BrokenError("a sequence that grows has other pages than what it computed is in")
    for page in pages[len(own.pages) :]:
        content.pop(page, None)
    own.pages, own.done = pages, end
    for index, page in enumerate(pages[: end // size]):
        content[page] = tuple(own.ids[: (index + 1) * size])
    pool.computed(key, own.ids[:end])
    return True


def _taken(pool: Pool, held: dict[int, _Sequence]) -> None:
    """Each page is one sequence's, or of several that have the same before its end; all others are free."""
    holders: dict[int, tuple[int, ...]] = {}
    for key, own in held.items():
        pages = list(pool.pages(key))
        if pages != own.pages:
            raise BrokenError("a sequence's pages change though it did not grow")
        if len(set(pages)) != len(pages) or not all(0 <= page < pool.pages_total for page in pages):
            raise BrokenError(f"a sequence has the pages {pages} of {pool.pages_total}")
        for index, page in enumerate(pages):
            end = (index + 1) * pool.page_size
            ids = tuple(own.ids[:end]) if end <= own.done else (-1 - key,)
            if holders.setdefault(page, ids) != ids:
                raise BrokenError(f"page {page} is given to a sequence while another has it")
    if pool.pages_free() != pool.pages_total - len(holders):
        raise BrokenError(f"{len(holders)} of {pool.pages_total} pages are in use, {pool.pages_free()} are free")


def _apart(subject: Subject) -> None:
    with running(subject) as pool, running(subject) as other:
        _computed(other, 1, [1] * 2 * other.page_size)
        if pool.begin(1, [1] * 2 * pool.page_size) or pool.pages_free() != pool.pages_total:
            raise BrokenError("what one pool has computed is in another, or takes its pages")


def _computed(pool: Pool, key: int, ids: list[int]) -> list[int]:
    """The pages of ids that were computed, by a sequence that has ended."""
    pool.begin(key, ids)
    if not pool.grow(key, len(ids)):
        raise BrokenError(f"{len(ids)} positions cannot be had of {pool.pages_free()} free pages")
    pages = list(pool.pages(key))
    pool.computed(key, ids)
    pool.end(key)
    return pages


def _all_free(pool: Pool) -> None:
    if pool.pages_free() != pool.pages_total:
        raise BrokenError(f"all has ended, {pool.pages_free()} of {pool.pages_total} pages are free")
