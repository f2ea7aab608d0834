"""A sentence and its parts, for the modules that say what differs."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pih.diff.amounts import shown, signed
from pih.diff.difference import Change, Component, Difference

_MOST = 6  # names in one sentence


@attrs.frozen
class Sentence:
    """told: components of the image whose change of size it accounts for."""

    text: str
    told: frozenset[str] = frozenset()


def setting(found: Difference, name: str) -> Change | None:
    """What became of a key of target, limits or service."""
    return next((row for row in found.settings if row.name == name), None)


def component(found: Difference, name: str) -> Component | None:
    """What became of a component, where its files changed."""
    rows = found.image.components if found.image else ()
    return next((row for row in rows if row.name == name), None)


def by(found: Difference, name: str) -> str:
    """` (+34.1 kB)` where a component's size changed, else ''."""
    row = component(found, name)
    return f" ({signed(row.size.growth)})" if row and row.size.growth else ""


def more(growth: int) -> str:
    """`98.2 MB less`."""
    return f"{shown(abs(growth))} {'more' if growth > 0 else 'less'}"


def listed(parts: Iterable[str]) -> str:
    """The first of many, and how many more."""
    names = list(parts)
    rest = len(names) - _MOST
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:_MOST])} and {rest} more"
