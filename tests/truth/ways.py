"""Ways to bring the same tokens through a backend, of which none may change a logit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tests.truth.drive import Driver, Part

CUTS = (0, 1, 8, 21)
BEFORE = 3  # decodes before the boundary


def chunked(driver: Driver, ids: Sequence[int], slot: int = 1) -> np.ndarray:
    """In pieces of several lengths, all logits of each."""
    parts = [Part(slot, a, ids[a:b], range(b - a)) for a, b in itertools.pairwise([*CUTS, len(ids)])]
    return np.concatenate([driver.step([part])[1] for part in parts])


def decoded(driver: Driver, ids: Sequence[int], slot: int = 2) -> np.ndarray:
    """One by one."""
    return np.concatenate([driver.step([Part(slot, at, [token])])[1] for at, token in enumerate(ids)])


def across(driver: Driver, ids: Sequence[int], boundary: int, slot: int = 0) -> np.ndarray:
    """A prefill in the largest steps to a few positions before the boundary, then decodes, beside one that stays short.

    Gives the logits after the last ids, from the prefill's last on, which is BEFORE + 1 before the boundary.
    """
    start, size = boundary - BEFORE, driver.backend.plan.limits.tokens
    found = [driver.step([Part(slot, at, ids[at : min(at + size, start)])])[1] for at in range(0, start, size)][-1:]
    for at in range(start, len(ids)):
        short = Part(slot + 1, at - start, [ids[at - start]])
        found.append(driver.step([Part(slot, at, [ids[at]]), short])[1][:1])
    return np.concatenate(found)
