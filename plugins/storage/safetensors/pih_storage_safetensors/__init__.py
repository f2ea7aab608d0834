"""storage.weights from one safetensors file: mapped, never copied, checked before anyone reads a tensor."""

from __future__ import annotations

from pih_runtime import bundle, plan
from pih_runtime.contracts import Context
from pih_storage_safetensors.mapped import MappedWeights, check_against, check_digest, open_weights

__all__ = ["start"]
PATH = "weights/weights.safetensors"


def start(context: Context) -> MappedWeights:
    """Map the weights; check their digest where the bundle knows it, and their tensors against the plan."""
    path = context.root / PATH
    wanted = plan.from_json((context.root / "plan.json").read_bytes(), str(context.root / "plan.json"))
    digest = bundle.digest_of(bundle.read(context.root), f"/pih/{PATH}")
    weights = open_weights(path, apart=digest is None)
    try:
        check_against(weights, wanted.weights, str(path))
        if digest is not None:
            check_digest(weights, digest, str(path))
    except BaseException:
        weights.stop()
        raise
    context.log(
        f"weights {len(weights.data)} bytes, {'verified ' + digest if digest else 'delivered apart: no digest'}"
    )
    return weights
