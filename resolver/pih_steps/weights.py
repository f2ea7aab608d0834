"""Step `weights`: pack the checkpoint's tensors as the plan says, into one standard safetensors file.

Where the plan is of several ranks the one file has the shares of all, each a tensor of its own (`Weight.stored`).

params: checkpoint (see lower/sources). steps: plan. Streams: the model is never in memory as a whole.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pih_runtime.plan import Plan, Weight, from_json
from pih_steps.lower import sources
from pih_steps.lower.checkpoint import Checkpoint
from pih_steps.lower.pack import check_sources, packed_chunks
from pih_steps.lower.safetensors import Entry, write
from pih_steps.lower.shares import share
from pih_steps.spec import Spec, param, step

_DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def run(spec: Spec) -> None:
    """Write weights.safetensors."""
    plan = from_json(step(spec, "plan").read_bytes(), "plan.json")
    with sources.opened(param(spec, "checkpoint"), spec.artifacts, spec.trees) as checkpoint:
        write_weights(plan, checkpoint, spec.output)


def write_weights(plan: Plan, checkpoint: Checkpoint, path: Path) -> None:
    """Pack every weight of the plan, in its order; the checkpoint is checked before a byte is written."""
    parts = [
        (weight, weight.stored(rank), share(weight, checkpoint, rank, plan.ranks))
        for weight in plan.weights
        for rank in range(plan.ranks if weight.split else 1)
    ]
    for weight, _, part in parts:
        check_sources(weight, part)
    metadata = {name: f"{weight.format} {weight.layout} {list(weight.shape)}" for weight, name, _ in parts}
    write(path, [_entry(*part) for part in parts], metadata)


def _entry(weight: Weight, name: str, checkpoint: Checkpoint) -> Entry:
    """Values that any reader understands keep their dtype; what only a kernel reads is bytes."""
    chunks = partial(packed_chunks, weight, checkpoint)
    if weight.layout == "rows" and weight.format in _DTYPES:
        return Entry(name, _DTYPES[weight.format], weight.shape, weight.nbytes, chunks)
    return Entry(name, "U8", (weight.nbytes,), weight.nbytes, chunks)
