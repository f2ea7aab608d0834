"""One request on its way: the state that scheduler and engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pih_execution_continuous.answer import Answer
from pih_runtime.contracts import Piece, Request


@dataclass(slots=True, eq=False)
class Sequence:
    """key: order of arrival. limit: ids in all, prompt included, at which it ends.

    ids: prompt and new ids known so far. flying: ids asked for in steps that are not booked yet.
    scheduled: positions given to the backend; computed: positions that are in the cache for certain.
    residence: counts how often it had to leave, so that a step from before a preemption is told from one after.
    """

    key: int
    request: Request
    limit: int
    ids: list[int]
    answer: Answer
    deliver: Callable[[Piece], None]
    flying: int = 0
    scheduled: int = 0
    computed: int = 0
    residence: int = 0
    slot: int = -1
    done: bool = False

    @property
    def length(self) -> int:
        """Ids known or asked for."""
        return len(self.ids) + self.flying

    @property
    def remaining(self) -> int:
        """Positions to give to the backend before it can be asked for the next id; 1 while decoding."""
        return self.length - self.scheduled


@dataclass(frozen=True, slots=True)
class Share:
    """A sequence's part of one step: `count` positions from `start`; wanted: the last one's next id is sampled."""

    sequence: Sequence
    start: int
    count: int
    wanted: bool
    residence: int
