"""The deployments that are checked on a GPU: a tiny Qwen3 for truth, Qwen3-0.6B's shape for speed; bf16 and int8.

Lowered the same way where cubins are made and where they run. Weights are seeded, by `pih_steps.lower.synthetic`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pih_runtime.plan import Limits, Weight
from pih_steps.lower import Checkpoint, Lowered, Tensor, lower, read_report
from pih_steps.lower.checkpoint import no_bytes
from pih_steps.lower.plugin import load_graph
from pih_steps.lower.quantized import stored_as
from tools.gpu.shapes import qwen3_shapes

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/qwen3-0.6b"
PLUGINS = ("backend/cuda", "backend/cuda-graphs", "backend/torch", "kernels/cuda", "model/qwen3")
SMS = ("sm_89", "sm_90")


@dataclass(frozen=True)
class Deployment:
    """changes: of the model's config. prefix: positions that a decode of the benchmark has behind it.

    weights: the format of the matrices; 'stored' is bf16.
    """

    name: str
    changes: dict[str, int]
    limits: Limits
    batches: tuple[int, ...]
    prefix: int
    steps: int
    seed: int = 0
    weights: str = "stored"

    def config(self) -> dict[str, object]:
        """The model's config."""
        return {**json.loads((MODEL / "config.json").read_bytes()), **self.changes}

    def checkpoint(self, *, seeded: bool) -> Checkpoint:
        """seeded: with bytes, for which numpy is needed."""
        config = self.config()
        tensors = {name: Tensor("bf16", shape) for name, shape in qwen3_shapes(config).items()}
        if not seeded:
            return stored_as(self.weights, Checkpoint("synthetic", config, tensors, no_bytes("synthetic")))
        from pih_steps.lower import synthetic

        return stored_as(self.weights, synthetic.checkpoint_of("synthetic", config, tensors, self.seed))

    def lowered(self, plugin: str, target: str, kv_dtype: str = "bf16") -> Lowered:
        """For kernels/cuda and a compute capability, or for backend/torch."""
        report = read_report(ROOT / "plugins" / plugin, target)
        graph = load_graph(ROOT / "plugins/model/qwen3")
        return lower(self.checkpoint(seeded=False), graph, report, self.limits, kv_dtype)

    def cubin(self, sm: str) -> Path:
        """Where its pack lies in a carried folder."""
        return ROOT / "cubins" / f"{self.name}-{sm}"


TINY = Deployment(
    "tiny",
    {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "bos_token_id": 0, "eos_token_id": 1,
    },
    Limits(tokens=64, seqs=32, context=320), (1, 8, 32), 24, 2,
)  # fmt: skip
FULL = Deployment("qwen3-0.6b", {}, Limits(tokens=512, seqs=32, context=2048), (1, 8, 32), 1024, 64)


def both(deployment: Deployment) -> tuple[Deployment, Deployment]:
    """With its weights as stored, and as int8."""
    return deployment, replace(deployment, name=f"{deployment.name}-int8", weights="int8")


class Seeded:
    """`contracts.Weights` over seeded values, packed when they are asked for."""

    def __init__(self, lowered: Lowered, checkpoint: Checkpoint) -> None:
        self._weights: dict[str, Weight] = {weight.name: weight for weight in lowered.plan.weights}
        self._checkpoint = checkpoint

    def tensor(self, name: str) -> memoryview:
        """The bytes."""
        from pih_steps.lower.pack import packed_chunks

        return memoryview(b"".join(packed_chunks(self._weights[name], self._checkpoint)))

    def unchecked(self, name: str) -> memoryview:
        """The same."""
        return self.tensor(name)

    def check(self, names: Iterable[str]) -> None:
        """Nothing here could be other than it is."""
