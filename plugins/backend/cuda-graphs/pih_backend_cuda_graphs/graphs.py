"""Graphs over the driver API: a batch of 1, 2, 4, 8 … decodes each has one, which serves every smaller batch too.

Kernels read a step's counts from the device and blocks past them end at once, so a graph whose grids are those of eight
sequences computes five as five would be alone.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Callable
from ctypes import POINTER, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from pih_runtime.contracts import GraphDevice
from pih_runtime.errors import WorkerError
from pih_runtime.step import Step

_P = POINTER
# Signatures as in the CUDA Driver API reference.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _P(c_void_p)),
    "cuGraphInstantiateWithFlags": (_P(c_void_p), c_void_p, c_uint64),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
}
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: a kernel may be loaded while it is recorded


class CudaGraphs:
    """`contracts.Graphs`."""

    def record(self, device: GraphDevice, most: int, queue: Callable[[int], None]) -> Replay:
        """One graph for each size; the device gives them back at its end. WorkerError where the driver refuses."""
        device.driver.declare(_FUNCTIONS)
        sizes = buckets(most)
        return Replay(device, sizes, tuple(_recorded(device, size, queue) for size in sizes))


@dataclass(frozen=True, slots=True)
class Replay:
    """`contracts.Replay`. sizes: the largest batch of each graph, rising."""

    device: GraphDevice
    sizes: tuple[int, ...]
    graphs: tuple[c_void_p, ...]

    def __call__(self, step: Step) -> bool:
        """Queue the smallest graph that serves the step; False for a step that is not of decodes alone."""
        seqs = len(step.seq_start) - 1
        if len(step.ids) != seqs:
            return False
        self.device.driver("cuGraphLaunch", self.graphs[bisect_left(self.sizes, seqs)], self.device.stream)
        return True


def buckets(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8 … and `most`."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


def _recorded(device: GraphDevice, size: int, queue: Callable[[int], None]) -> c_void_p:
    graph, executable = c_void_p(), c_void_p()
    driver = device.driver
    driver("cuStreamBeginCapture_v2", device.stream, _RELAXED)
    try:
        queue(size)
    except WorkerError as cause:
        cause.what += _refused(driver, "cuStreamEndCapture", device.stream, ctypes.byref(graph))
        cause.what += _refused(driver, "cuGraphDestroy", graph) if graph else ""
        raise
    driver("cuStreamEndCapture", device.stream, ctypes.byref(graph))
    try:
        driver("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
    except WorkerError as cause:
        cause.what = f"a graph of {size} decodes: {cause.what}" + _refused(driver, "cuGraphDestroy", graph)
        raise
    device.hold("cuGraphExecDestroy", executable)
    driver("cuGraphDestroy", graph)
    return executable


def _refused(driver: Callable[..., None], function: str, *arguments: Any) -> str:
    """A line on what the driver says of giving something back, if it refuses; '' otherwise."""
    try:
        driver(function, *arguments)
    except WorkerError as problem:
        return f"\n  while releasing: {problem.what}"
    return ""
