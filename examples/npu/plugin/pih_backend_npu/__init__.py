"""backend/npu: `start` reads the bundle's plan and returns the `contracts.Backend` that runs it.

Imports `pih_runtime` and the standard library; wheels beside that are named in plugin.toml.
"""

from __future__ import annotations

import os

from pih_backend_npu.backend import Backend
from pih_backend_npu.device import assigned, visible
from pih_runtime import plan as plans
from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError


def start(context: Context) -> Backend:
    """Read the plan, take memory, load the weights. Where it raises, everything taken is given back."""
    context.provider("platform.host")  # this backend has no use for its threads
    path = context.root / "plan.json"
    try:
        plan = plans.from_json(path.read_bytes(), str(path))
    except OSError as problem:
        raise WorkerError(
            f"cannot read: {problem.strerror}", where=str(path), fix="build the bundle again"
        ) from problem
    device = assigned(visible(os.environ), context.rank)
    rank = context.provider("transport.collectives").join(context.rank) if context.ranks > 1 else None
    backend = Backend(plan, context.provider("storage.weights"), device, rank)
    context.log(f"backend/npu: device {device.index}, {device.pool.used} bytes of it, {len(plan.calls)} calls a step")
    return backend
