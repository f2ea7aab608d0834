"""One decode step of a Qwen3 in bf16 by torch's own operations, to compare with: eager, compiled, transformers.

Weights are random, caches are static: what is measured is how fast the same work goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as nn

from tools.gpu.shapes import qwen3_shapes

Config = Mapping[str, Any]
DEVICE = "cuda"


def eager(config: Config, batch: int, prefix: int, context: int) -> Callable[[], None]:
    """A call is one step, finished."""
    return _finished(_step(config, batch, prefix, context))


def compiled(config: Config, batch: int, prefix: int, context: int) -> Callable[[], None]:
    """With CUDA graphs, as torch.compile makes them."""
    return _finished(torch.compile(_step(config, batch, prefix, context), mode="reduce-overhead"))


def transformers(config: Config, batch: int, prefix: int, context: int) -> Callable[[], None]:
    """The library's own model with its static cache."""
    from transformers import AutoConfig, AutoModelForCausalLM, StaticCache

    own = AutoConfig.for_model(**{key: value for key, value in config.items() if key != "torch_dtype"})
    model = AutoModelForCausalLM.from_config(own, dtype=torch.bfloat16).to(DEVICE).eval()
    cache = StaticCache(config=own, max_cache_len=context)
    ids = torch.ones(batch, 1, dtype=torch.long, device=DEVICE)
    place = torch.tensor([prefix], device=DEVICE)

    def step() -> torch.Tensor:
        found: torch.Tensor = model(ids, past_key_values=cache, cache_position=place, use_cache=True).logits
        return found

    return _finished(step)


def _finished(step: Callable[[], torch.Tensor]) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode():
            step().argmax(-1).cpu()

    return run


def _step(config: Config, batch: int, prefix: int, context: int) -> Callable[[], torch.Tensor]:
    options: dict[str, Any] = {"dtype": torch.bfloat16, "device": DEVICE}
    weights = {name: torch.randn(shape, **options) * 0.02 for name, shape in qwen3_shapes(config).items()}
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    layers, eps = config["num_hidden_layers"], config["rms_norm_eps"]
    keys, values = (torch.zeros(layers, batch, kv_heads, context, dim, **options) for _ in range(2))
    angles = torch.randn(dim // 2, device=DEVICE)
    cos, sin = (torch.cat([part, part]).to(torch.bfloat16) for part in (angles.cos(), angles.sin()))
    ids = torch.ones(batch, dtype=torch.long, device=DEVICE)

    def turned(x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-high, low], dim=-1) * sin

    def step() -> torch.Tensor:
        x = weights["model.embed_tokens.weight"][ids]
        for layer in range(layers):
            of = f"model.layers.{layer}."
            h = nn.rms_norm(x, (x.shape[-1],), weights[of + "input_layernorm.weight"], eps)
            q, k, v = (nn.linear(h, weights[f"{of}self_attn.{name}_proj.weight"]) for name in "qkv")
            q = nn.rms_norm(q.view(batch, heads, dim), (dim,), weights[of + "self_attn.q_norm.weight"], eps)
            k = nn.rms_norm(k.view(batch, kv_heads, dim), (dim,), weights[of + "self_attn.k_norm.weight"], eps)
            keys[layer, :, :, prefix] = turned(k)
            values[layer, :, :, prefix] = v.view(batch, kv_heads, dim)
            own = (keys[layer, :, :, : prefix + 1], values[layer, :, :, : prefix + 1])
            y = nn.scaled_dot_product_attention(turned(q)[:, :, None], *own, enable_gqa=True)
            x = x + nn.linear(y.reshape(batch, heads * dim), weights[of + "self_attn.o_proj.weight"])
            h = nn.rms_norm(x, (x.shape[-1],), weights[of + "post_attention_layernorm.weight"], eps)
            gate, up = (nn.linear(h, weights[f"{of}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
            x = x + nn.linear(nn.silu(gate) * up, weights[of + "mlp.down_proj.weight"])
        x = nn.rms_norm(x, (x.shape[-1],), weights["model.norm.weight"], eps)
        return nn.linear(x, weights["model.embed_tokens.weight"])

    return step
