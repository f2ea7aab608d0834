"""What a search for plugins comes to: a solution, or the dead end that it met first."""

from __future__ import annotations

import attrs

from pih.catalog import Manifest
from pih.resolve.rules import Need, Refusal

Served = tuple[tuple[Need, Manifest], ...]


@attrs.frozen
class DeadEnd:
    """A need that nothing could serve, given the plugins chosen before it and how they were needed.

    later: the next dead ends of the search, for other choices. steps: candidates and clauses that were looked at.
    given_up: before all was tried, so that nobody knows whether there is a solution.
    """

    need: Need
    refusals: tuple[Refusal, ...]
    served: Served
    later: tuple[DeadEnd, ...] = ()
    steps: int = attrs.field(default=0, eq=False)
    given_up: bool = False


@attrs.frozen
class Solution:
    """served: every need with its plugin, in the order of the search. steps: candidates and clauses looked at."""

    plugins: tuple[Manifest, ...]
    served: Served
    steps: int = attrs.field(default=0, eq=False)
