"""A linear over several devices: each holds some of the weight's rows, and all of them get the whole result."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from concurrent.futures import Executor
from operator import mul
from typing import Any

from pih_backend_npu.batch import Batch
from pih_backend_npu.collectives import Group
from pih_backend_npu.memory import Row, View


def linear(
    _batch: Batch, attrs: Mapping[str, Any], x: View, weight: View, y: View, *, group: Group, ranks: Executor
) -> None:
    """A dot product for each row of the weight, on the device that holds it."""
    bounds = [len(weight) * rank // group.size for rank in range(group.size + 1)]
    for source, target in zip(x, y, strict=True):
        own = source.tolist()

        def run(rank: int, own: list[float] = own) -> array[float]:
            try:
                return group.all_gather(rank, _dots(own, weight[bounds[rank] : bounds[rank + 1]]))
            except BaseException:
                group.abort()
                raise

        result: Row = list(ranks.map(run, range(group.size)))[0]  # noqa: RUF015 - every rank's, so that each has ended
        if attrs["accumulate"]:
            result = array("f", [a + b for a, b in zip(result, target, strict=True)])
        target[:] = result


def _dots(own: list[float], rows: View) -> array[float]:
    return array("f", [sum(map(mul, own, row)) for row in rows])
