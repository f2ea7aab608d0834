"""Bounds of a kernel: what a figure of its call may be at most, or a product of figures, or one divided by another.

A capability report writes them as `most = { head_dim = 128, "heads / kv_heads" = 16, "heads * seqs" = 4096 }`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MOST_INT = (1 << 31) - 1  # kernels take their constants as C++'s int, bits of a float32 apart


class Past(NamedTuple):
    """A bound that a call is past. term: what is bounded, as the report writes it."""

    term: str
    most: int
    is_: int


def names(term: str) -> list[str]:
    """The figures that a term is made of."""
    return re.split(r" [*/] ", term)


def past(figures: Mapping[str, int], most: Mapping[str, int]) -> list[Past]:
    """The bounds that these figures are past, sorted; figures that a call lacks are past none."""
    known = {term: limit for term, limit in most.items() if all(name in figures for name in names(term))}
    return [
        Past(term, limit, value) for term, limit in sorted(known.items()) if (value := _value(term, figures)) > limit
    ]


def of_constants(constants: Iterable[str], most: Mapping[str, int]) -> dict[str, int]:
    """The bounds of a report's entry, with those of the type that constants have."""
    return {**{name: MOST_INT for name in constants if not name.endswith("_bits")}, **most}


def largest(past_: Past, name: str, figures: Mapping[str, int]) -> int:
    """The largest value of one factor with which the others keep to the bound; 0 where it is no factor."""
    return past_.most // max(past_.is_ // figures[name], 1) if name in names(past_.term) else 0


def _value(term: str, figures: Mapping[str, int]) -> int:
    """A quotient is rounded up: so many of the first does one of the second have at most."""
    first, *rest = re.split(r" ([*/]) ", term)
    value = figures[first]
    for sign, name in zip(rest[::2], rest[1::2], strict=True):
        value = value * figures[name] if sign == "*" else -(-value // max(figures[name], 1))
    return value
