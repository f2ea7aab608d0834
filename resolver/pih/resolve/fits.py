"""The nearest deployments that fit the memory, computed: each is lowered, and its sums are under their limits.

What nothing in the catalog supports is not tried: `Levers` says what there is beside smaller limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, count
from typing import Any

import attrs

from pih.lock import Budget, Limits
from pih_runtime.errors import ResolutionError

_CONTEXT_GRAIN = 16
_LEAST_SHARE = 16  # a context of less than this part of what was asked is another deployment, no near fit
_LEAST_TOKENS = 16
_MOST_OFFERED = 3  # of changes that take as many limits together
_MOST_MIB = 999_999  # the largest number that a profile takes before a unit


@attrs.frozen
class Size:
    """What of a profile decides its memory. weights: the matrices' format, '' for the checkpoint's own."""

    limits: Limits
    threads: int
    devices: int = 0
    weights: str = ""


@attrs.frozen
class Levers:
    """What catalog and target give beside smaller limits.

    formats: of weights that the pack runs fast, from the largest to the smallest. devices: the most that there may be,
    0 where the backend computes on none. spills: whether the memory plugin keeps cache pages elsewhere than there.
    """

    formats: tuple[str, ...] = ()
    devices: int = 0
    spills: bool = False


Measure = Callable[[Size], Budget]
Step = Callable[[Size, Measure], Size | None]


def over(budget: Budget) -> bool:
    """Whether it does not fit."""
    return budget.total > budget.limit or budget.device > budget.device_limit


def nearest(size: Size, measure: Measure, levers: Levers) -> list[str]:
    """Changes of the profile that make it fit, in words: single ones, else as few together as do."""
    steps: list[Step] = [] if _hopeless(measure(size)) else [_smaller(lever) for lever in _LIMITS]
    steps += [_stored(levers.formats), _spread(levers.devices), *([_spilling] if levers.spills else [])]
    alone = [_words(size, found) for step in steps if (found := step(size, measure))]
    if alone:
        return alone
    for stored in (size, *(attrs.evolve(size, weights=weights) for weights in levers.formats)):
        if not _runs(stored, measure) or _hopeless(measure(stored)):
            continue
        for many in range(1, len(_LIMITS) + 1):
            several = [found for limits in combinations(_LIMITS, many) if (found := _together(stored, limits, measure))]
            if several:
                return [_words(size, found) for found in several[:_MOST_OFFERED]]
    return []


def memory(nbytes: int) -> str:
    """The smallest amount that a profile can name which holds so many bytes."""
    mib = -(-nbytes // 2**20)
    return f'"{mib} MiB"' if mib <= _MOST_MIB else f'"{-(-nbytes // 2**30)} GiB"'


def _hopeless(budget: Budget) -> bool:
    """Whether weights and host alone are too much."""
    if budget.device:
        return budget.weights > budget.device_limit or budget.host > budget.limit
    return budget.weights + budget.host > budget.limit


@attrs.frozen
class _Limit:
    """A number of a profile that takes memory, as a multiple of `grain`. least: of it, beside the rest of the size."""

    of: Callable[[Size], int]
    least: Callable[[Size], int]
    at: Callable[[Size, int], Size]
    grain: int = 1


def _limited(size: Size, **limits: Any) -> Size:
    return attrs.evolve(size, limits=attrs.evolve(size.limits, **limits))


# In the order in which they are given back where several went down: the first is what a user would miss most.
_LIMITS = (
    _Limit(
        lambda size: size.limits.context,
        lambda size: max(size.limits.context // _LEAST_SHARE // _CONTEXT_GRAIN, 1) * _CONTEXT_GRAIN,
        lambda size, context: _limited(size, context=context),
        _CONTEXT_GRAIN,
    ),
    _Limit(lambda size: size.limits.batch, lambda _: 1, lambda size, batch: _limited(size, batch=batch)),
    _Limit(  # bytes
        lambda size: 4 if size.limits.kv_dtype == "f32" else 2,
        lambda _: 2,
        lambda size, width: _limited(size, kv_dtype="f32" if width == 4 else "bf16"),
        2,
    ),
    _Limit(
        lambda size: size.limits.tokens,
        lambda size: max(size.limits.batch, min(_LEAST_TOKENS, size.limits.tokens)),
        lambda size, tokens: _limited(size, tokens=tokens),
    ),
    _Limit(lambda size: size.threads, lambda _: 1, lambda size, threads: attrs.evolve(size, threads=threads)),
)


def _smaller(limit: _Limit) -> Step:
    """One limit, as far down as it takes."""
    return lambda size, measure: _together(size, (limit,), measure)


def _together(size: Size, limits: Sequence[_Limit], measure: Measure) -> Size | None:
    """These limits, all of them lower: each, one after the other, as large as fits beside the rest."""
    lowered = size
    for limit in limits:
        if limit.of(lowered) <= limit.least(lowered):
            return None
        lowered = limit.at(lowered, limit.least(lowered))
    if not _fits(lowered, measure):
        return None
    for limit in limits:
        lowered = _raised(lowered, limit, limit.of(size), measure)
    return lowered


def _stored(formats: tuple[str, ...]) -> Step:
    """The first of these formats that does."""

    def step(size: Size, measure: Measure) -> Size | None:
        sizes = (attrs.evolve(size, weights=weights) for weights in formats)
        return next((found for found in sizes if _fits(found, measure)), None)

    return step


def _spread(most: int) -> Step:
    """The fewest devices that do, of doublings: what is divided among them comes in powers of two."""

    def step(size: Size, measure: Measure) -> Size | None:
        devices = 2 * size.devices
        while 0 < devices <= most:
            if _fits(attrs.evolve(size, devices=devices), measure):
                return attrs.evolve(size, devices=devices)
            devices *= 2
        return None

    return step


def _spilling(size: Size, measure: Measure) -> Size | None:
    """The least spill that does, in MiB; one sequence's pages stay on the device."""

    def at(mib: int) -> Size:
        return _limited(size, spill=mib << 20)

    budget, now = measure(size), size.limits.spill
    low = (now + max(budget.device - budget.device_limit, 0)) >> 20
    most = (now + budget.kv - budget.kv // size.limits.batch) >> 20
    high = low + 1
    while high < most and not _fits(at(high), measure):
        low, high = high, min(2 * high - low + 1, most)
    if high > most or not _fits(at(high), measure):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(at(middle), measure) else (middle, high)
    return at(high)


def _raised(size: Size, limit: _Limit, most: int, measure: Measure) -> Size:
    """The limit at the largest value below `most` that fits, from one that does; a multiple of its grain.

    Memory grows with every limit, and nearly in a straight line: its answer is tried, in turn with the middle.
    """
    low, high, grain = limit.of(size), most, limit.grain
    for turn in count():
        if high - low <= grain:
            break
        small, large = _used(measure(limit.at(size, low))), _used(measure(limit.at(size, high)))
        line = (high - low) * -small // max(large - small, 1)
        guess = low + ((high - low) // 2 if turn % 2 else line)
        guess = min(max(guess // grain * grain, low + grain), high - 1)
        step = guess + grain
        if _fits(limit.at(size, guess), measure):
            low = guess
            if step < high and not _fits(limit.at(size, step), measure):
                break
        else:
            high = guess
    return limit.at(size, low)


def _used(budget: Budget) -> int:
    """Bytes above the limit that is nearest; negative where there is room."""
    return (
        max(budget.total - budget.limit, budget.device - budget.device_limit)
        if budget.device
        else (budget.total - budget.limit)
    )


def _fits(size: Size, measure: Measure) -> bool:
    return _runs(size, measure) and not over(measure(size))


def _runs(size: Size, measure: Measure) -> bool:
    """Whether there is such a deployment at all: plugins, kernels for its weights, room for one sequence's pages."""
    try:
        measure(size)
    except ResolutionError:
        return False
    return True


def _words(before: Size, after: Size) -> str:
    """`limits.batch = 1 with limits.context = 512`: the lines of a profile that differ."""
    was, now = attrs.asdict(before.limits), attrs.asdict(after.limits)
    lines = [_of_weights(after.weights)] if after.weights != before.weights else []
    lines += [f"limits.{key} = {_value(key, now[key])}" for key in now if now[key] != was[key]]
    lines += [f"device.count = {after.devices}"] if after.devices != before.devices else []
    lines += [f"target.threads = {after.threads}"] if after.threads != before.threads else []
    return " with ".join(lines)


def _of_weights(format_: str) -> str:
    """Some formats are made from what a checkpoint stores; for others it takes another checkpoint."""
    from pih_steps.lower.quantized import FORMATS

    return f'weights.format = "{format_}"' if format_ in FORMATS else f"model.weights that are stored as {format_}"


def _value(key: str, value: Any) -> str:
    if key == "spill":
        return memory(value)
    return f'"{value}"' if isinstance(value, str) else str(value)
