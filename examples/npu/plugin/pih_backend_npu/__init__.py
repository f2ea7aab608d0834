"""backend/npu: `start` reads the bundle's plan and returns the `contracts.Backend` that runs it.

Imports `pih_runtime` and the standard library; wheels beside that are named in plugin.toml.
"""

from __future__ import annotations

import os

from pih_backend_npu.backend import Backend
from pih_backend_npu.device import assigned, visible
from pih_runtime import plan as plans
from pih_runtime.contracts import Context


def start(context: Context) -> Backend:
    """Read the plan, take memory, load the weights. Where it raises, everything taken is given back."""
    context.provider("platform.host")  # this backend has no use for its threads
    plan = plans.read(context.root)
    device = assigned(visible(os.environ), context.rank)
    rank = context.provider("transport.collectives").join(context.rank) if context.ranks > 1 else None
    backend = Backend(plan, context.provider("storage.weights"), device, rank)
    context.log(f"backend/npu: device {device.index}, {device.pool.used} bytes of it, {len(plan.calls)} calls a step")
    return backend
