"""backend.device in torch: every op of a plan in float32, as `pih_runtime.ops` defines it."""

from __future__ import annotations

import torch

from pih_backend_torch.backend import TorchBackend
from pih_runtime import plan as plans
from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError

__all__ = ["TorchBackend", "start"]


def start(context: Context) -> TorchBackend:
    """Read the plan and make every weight float32."""
    path = context.root / "plan.json"
    try:
        plan = plans.from_json(path.read_bytes(), str(path))
    except OSError as problem:
        raise WorkerError(
            f"cannot read: {problem.strerror}", where=str(path), fix="build the bundle again"
        ) from problem
    torch.set_num_threads(context.provider("platform.host").threads)
    return TorchBackend(plan, context.provider("storage.weights"))
