"""Weights on their way to the device: one allocation, each tensor at a place that suits the widest load."""

from __future__ import annotations

import ctypes

from pih_backend_cuda.device import Device
from pih_runtime.contracts import Weights
from pih_runtime.errors import WorkerError
from pih_runtime.plan import Plan

_ALIGNMENT = 256
_PIECE = 64 << 20  # bytes a copy, so that pages that were read can be dropped again


def upload(plan: Plan, weights: Weights, device: Device) -> dict[str, int]:
    """Copy every weight of the plan; gives each one's address on the device."""
    offsets, at = {}, 0
    for weight in plan.weights:
        offsets[weight.name] = at
        at += -(-weight.nbytes // _ALIGNMENT) * _ALIGNMENT
    base = device.memory(at, "weights")
    for weight in plan.weights:
        view = weights.tensor(weight.name)
        if view.nbytes != weight.nbytes:
            raise WorkerError(
                f"weight {weight.name!r} has {view.nbytes} bytes, the plan says {weight.nbytes}",
                fix="build the bundle again",
            )
        for start in range(0, weight.nbytes, _PIECE):
            piece = bytes(view[start : start + _PIECE])
            source = ctypes.cast(ctypes.c_char_p(piece), ctypes.c_void_p)
            device.driver("cuMemcpyHtoD_v2", base + offsets[weight.name] + start, source, len(piece))
    return {name: base + offset for name, offset in offsets.items()}
