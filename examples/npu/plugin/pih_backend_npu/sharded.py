"""A linear over several ranks: each holds some of the weight's rows, and all of them get the whole result."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from operator import mul
from typing import Any

from pih_backend_npu.batch import Batch
from pih_backend_npu.memory import View
from pih_runtime.contracts import Rank


def linear(_batch: Batch, attrs: Mapping[str, Any], x: View, weight: View, y: View, *, rank: Rank | None) -> None:
    """A dot product for each row of the weight, on the rank that holds it; rank None: there is one alone.

    Shares are equal, as `all_gather` wants them; the last may be filled up with zeros.
    """
    size = rank.size if rank else 1
    share = -(-len(weight) // size)
    first = share * rank.rank if rank else 0
    for source, target in zip(x, y, strict=True):
        own = source.tolist()
        dots = array("f", [sum(map(mul, own, row)) for row in weight[first : first + share]])
        if rank is not None:
            dots.extend([0.0] * (share - len(dots)))
            whole = array("f", bytes(4 * share * size))
            rank.all_gather(memoryview(dots), memoryview(whole), share, "f32")
            dots = whole[: len(weight)]
        if attrs["accumulate"]:
            dots = array("f", [a + b for a, b in zip(dots, target, strict=True)])
        target[:] = dots
