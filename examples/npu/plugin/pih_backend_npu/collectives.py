"""What ranks do together, by the transport's end that this rank has: a plan of several ranks calls it between ops."""

from __future__ import annotations

from array import array

from pih_backend_npu.memory import View
from pih_runtime.contracts import Rank


def all_reduce(rank: Rank, x: View, y: View) -> None:
    """The sum of every rank's rows, in one exchange."""
    own, total = _flat(x), array("f", bytes(4 * sum(map(len, x))))
    rank.all_reduce(memoryview(own), memoryview(total), len(own), "f32")
    width = len(x[0]) if x else 0
    for index, target in enumerate(y):
        target[:] = total[index * width : (index + 1) * width]


def all_gather(rank: Rank, x: View, y: View) -> None:
    """Every rank's columns side by side."""
    own = _flat(x)
    every = array("f", bytes(4 * rank.size * len(own)))
    rank.all_gather(memoryview(own), memoryview(every), len(own), "f32")
    width = len(x[0]) if x else 0
    for index, target in enumerate(y):
        for part in range(rank.size):
            start = part * len(own) + index * width
            target[part * width : (part + 1) * width] = every[start : start + width]


def _flat(view: View) -> array[float]:
    return array("f", b"".join(row.tobytes() for row in view))


RUN = {"all_reduce": all_reduce, "all_gather": all_gather}
