"""The nearest deployments that fit the memory, computed: each is lowered, and its sums are under their limits.

What nothing in the catalog supports is not tried: `Levers` says what there is beside smaller limits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import attrs

from pih.lock import Budget, Limits
from pih_runtime.errors import ResolutionError

_CONTEXT_GRAIN = 16
_LEAST_SHARE = 16  # a context of less than this part of what was asked is another deployment, no near fit
_LEAST_TOKENS = 16
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

    formats: of weights that the pack runs fast, from the largest to the smallest. devices: the most that a transport
    serves, 0 without one. spills: whether the memory plugin keeps cache pages elsewhere than on a device.
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
    steps = [] if _hopeless(measure(size)) else _smaller(size)
    steps += [_stored(levers.formats), _spread(levers.devices), *([_spilling] if levers.spills else [])]
    alone = [_words(size, found) for step in steps if (found := step(size, measure))]
    if alone:
        return alone
    for stored in (size, *(attrs.evolve(size, weights=weights) for weights in levers.formats)):
        if not _runs(stored, measure) or _hopeless(measure(stored)):
            continue
        single = [step(stored, measure) for step in _smaller(stored)]
        several = single if any(single) else [_together(stored, measure)]
        if any(several):
            return [_words(size, found) for found in several if found]
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


def _smaller(size: Size) -> list[Step]:
    cache = [_half_cache] if size.limits.kv_dtype == "f32" else []
    return [_if_it_fits(step) for step in (_shorter, _fewer_sequences, *cache, _fewer_tokens, _fewer_threads)]


def _together(size: Size, measure: Measure) -> Size | None:
    """The first that fits as one limit after the other goes down."""
    for step in (_half_cache, _least_tokens, _one_thread, _one_sequence, _shorter):
        found = step(size, measure)
        if found is not None and _fits(found, measure):
            return found
        size = found or size
    return None


def _if_it_fits(step: Step) -> Step:
    def checked(size: Size, measure: Measure) -> Size | None:
        found = step(size, measure)
        return found if found is not None and found != size and _fits(found, measure) else None

    return checked


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


def _shorter(size: Size, measure: Measure) -> Size | None:
    now = size.limits.context
    least = max(now // _LEAST_SHARE // _CONTEXT_GRAIN, 1) * _CONTEXT_GRAIN
    return _most(now, least, _CONTEXT_GRAIN, lambda context: _limited(size, context=context), measure)


def _fewer_sequences(size: Size, measure: Measure) -> Size | None:
    return _most(size.limits.batch, 1, 1, lambda batch: _limited(size, batch=batch), measure)


def _fewer_tokens(size: Size, measure: Measure) -> Size | None:
    least = max(size.limits.batch, min(_LEAST_TOKENS, size.limits.tokens))
    return _most(size.limits.tokens, least, 1, lambda tokens: _limited(size, tokens=tokens), measure)


def _fewer_threads(size: Size, measure: Measure) -> Size | None:
    return _most(size.threads, 1, 1, lambda threads: attrs.evolve(size, threads=threads), measure)


def _half_cache(size: Size, _: Measure) -> Size | None:
    return _limited(size, kv_dtype="bf16")


def _least_tokens(size: Size, _: Measure) -> Size | None:
    return _limited(size, tokens=max(size.limits.batch, min(_LEAST_TOKENS, size.limits.tokens)))


def _one_thread(size: Size, _: Measure) -> Size | None:
    return attrs.evolve(size, threads=1)


def _one_sequence(size: Size, _: Measure) -> Size | None:
    return _limited(size, batch=1)


def _most(now: int, least: int, grain: int, at: Callable[[int], Size], measure: Measure) -> Size | None:
    """The largest count below `now`, a multiple of grain, that fits; None where not even `least` does.

    Memory grows with every count, and nearly in a straight line: its answer is tried, in turn with the middle.
    """
    low, high = least, now
    if now <= least or not _fits(at(least), measure):
        return None
    for turn in count():
        if high - low <= grain:
            break
        small, large = _used(measure(at(low))), _used(measure(at(high)))
        line = (high - low) * -small // max(large - small, 1)
        guess = low + ((high - low) // 2 if turn % 2 else line)
        guess = min(max(guess // grain * grain, low + grain), high - 1)
        step = guess + grain
        if _fits(at(guess), measure):
            low = guess
            if step < high and not _fits(at(step), measure):
                break
        else:
            high = guess
    return at(low)


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
    """Whether there is such a deployment at all: kernels for its weights, room for one sequence's pages."""
    try:
        measure(size)
    except ResolutionError:
        return False
    return True


def _limited(size: Size, **limits: Any) -> Size:
    return attrs.evolve(size, limits=attrs.evolve(size.limits, **limits))


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
