"""backend.device in torch: every op of a plan in float32, as `pih_runtime.ops` defines it."""

from __future__ import annotations

import torch

from pih_backend_torch.backend import TorchBackend
from pih_runtime import plan as plans
from pih_runtime.contracts import Context

__all__ = ["TorchBackend", "start"]


def start(context: Context) -> TorchBackend:
    """Read the plan and make every weight float32."""
    plan = plans.read(context.root)
    torch.set_num_threads(context.provider("platform.host").threads)
    return TorchBackend(plan, context.provider("storage.weights"))
