"""The memory budget: what the worker will allocate, in bytes, against what the target gives.

Where it does not fit, the nearest deployments that do are computed: each is lowered, and its sum is under the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import attrs

from pih.catalog import Manifest
from pih.lock import Budget, Limits, Target
from pih.resolve.lowering import Lowered
from pih_runtime.errors import ResolutionError

# Python itself, its loaded libraries, pih_runtime, the parsed lock, plan and bundle list, at ready.
INTERPRETER_BYTES = 24_000_000
_CONTEXT_GRAIN = 16
_LEAST_SHARE = 16  # a context of less than this part of what was asked is another deployment, no near fit
_LEAST_TOKENS = 16
_MOST_MIB = 999_999  # the largest number that a profile takes before a unit


@attrs.frozen
class Size:
    """What of a profile decides how much memory it takes, beside the model."""

    limits: Limits
    threads: int


Measure = Callable[[Size], Budget]


def budget_of(lowered: Lowered, plugins: tuple[Manifest, ...], target: Target, batch: int) -> Budget:
    """The sums; `check` judges them.

    Activations: the arena, and scratch for each share of a call that needs it, which are rows: no more than threads.
    """
    host = INTERPRETER_BYTES + sum(plugin.runtime.host_bytes for plugin in plugins if plugin.runtime is not None)
    activations = lowered.arena + lowered.scratch * min(target.threads, batch)
    return Budget(
        weights=lowered.weights,
        kv=lowered.kv,
        activations=activations,
        spill=0,
        host=host,
        total=lowered.weights + lowered.kv + activations + host,
        limit=target.memory_bytes,
    )


def check(budget: Budget, size: Size, measure: Measure, reason: str) -> None:
    """Refuse a deployment that cannot fit, with the numbers and the nearest fits.

    measure: the budget of the same deployment at another size. reason: the profile's memory line.
    """
    if budget.total <= budget.limit:
        return
    hopeless = budget.weights + budget.host > budget.limit
    fits = [f"target.memory = {_memory(budget.total)}", *([] if hopeless else nearest(size, measure))]
    raise ResolutionError(
        f"Because {reason},\n"
        f"  and weights {_mib(budget.weights)} + KV cache {_mib(budget.kv)} + activations {_mib(budget.activations)} + "
        f"host {_mib(budget.host)} = {_mib(budget.total)}.\n"
        f"  So it is {_mib(budget.total - budget.limit)} too large.",
        fix="the nearest fits are " + ", or ".join(fits),
    )


def nearest(size: Size, measure: Measure) -> list[str]:
    """Changes of the profile that make it fit, in words: single ones, else as few together as do."""
    alone = [words for step in _steps(size) if (found := step(size, measure)) and (words := _words(size, found))]
    if alone:
        return alone
    smaller = size
    for step in (_half_cache, _least_tokens, _one_thread, _one_sequence, _shorter):
        found = step(smaller, measure)
        if found is not None and _fits(found, measure):
            return [_words(size, found)]
        smaller = found or smaller
    return []


def _steps(size: Size) -> list[Callable[[Size, Measure], Size | None]]:
    cache = [_half_cache] if size.limits.kv_dtype == "f32" else []
    single = [_shorter, _fewer_sequences, *cache, _fewer_tokens, _fewer_threads]
    return [_only_if_it_fits(step) for step in single]


def _only_if_it_fits(step: Callable[[Size, Measure], Size | None]) -> Callable[[Size, Measure], Size | None]:
    def checked(size: Size, measure: Measure) -> Size | None:
        found = step(size, measure)
        return found if found is not None and found != size and _fits(found, measure) else None

    return checked


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
        small, large = measure(at(low)), measure(at(high))
        line = (high - low) * (small.limit - small.total) // max(large.total - small.total, 1)
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


def _fits(size: Size, measure: Measure) -> bool:
    budget = measure(size)
    return budget.total <= budget.limit


def _limited(size: Size, **limits: Any) -> Size:
    return attrs.evolve(size, limits=attrs.evolve(size.limits, **limits))


def _words(before: Size, after: Size) -> str:
    """`limits.batch = 1 with limits.context = 512`: the lines of a profile that differ."""
    was, now = attrs.asdict(before.limits), attrs.asdict(after.limits)
    lines = [f"limits.{key} = {_value(now[key])}" for key in now if now[key] != was[key]]
    lines += [f"target.threads = {after.threads}"] if after.threads != before.threads else []
    return " with ".join(lines)


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


def _memory(nbytes: int) -> str:
    """The smallest amount that a profile can name which holds so many bytes."""
    mib = -(-nbytes // 2**20)
    return f'"{mib} MiB"' if mib <= _MOST_MIB else f'"{-(-nbytes // 2**30)} GiB"'
