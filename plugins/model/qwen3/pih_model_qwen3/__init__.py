"""Qwen3 dense decoders: as Llama, with each query and key head normalised before it is rotated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pih_runtime.plan import Limits
from pih_steps.lower import (
    Builder,
    Graph,
    Tensor,
    attention_heads,
    check_context,
    check_full_attention,
    expect,
    inv_freq,
    real,
    rope_theta,
    whole,
)

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def graph(config: Mapping[str, Any], tensors: Mapping[str, Tensor], limits: Limits) -> Graph:
    """The decoder that `config` describes, over the tensor names of Hugging Face's checkpoints."""
    hidden, ffn, vocab = (whole(config, key) for key in ("hidden_size", "intermediate_size", "vocab_size"))
    layers, eps = whole(config, "num_hidden_layers"), real(config, "rms_norm_eps")
    heads, kv_heads, head_dim = attention_heads(config)
    expect(config, "model_type", ("qwen3",))
    pairs = expect(config, "rope_pairs", ("half",))
    tied = expect(config, "tie_word_embeddings", (False, True))
    expect(config, "hidden_act", ("silu",))
    expect(config, "attention_bias", (False,))
    check_full_attention(config)
    check_context(config, limits)

    g = Builder("qwen3", tensors)
    g.cache("kv", layers, kv_heads, head_dim)
    table = g.rope_table("rope", inv_freq(rope_theta(config), head_dim))
    x = g.embed("x", _EMBEDDING, vocab, hidden)
    for layer in range(layers):
        at, of = f"{layer}.", f"model.layers.{layer}."
        h = g.rms_norm(at + "attn_in", x, of + "input_layernorm.weight", eps)
        q = g.linear(at + "q", h, of + "self_attn.q_proj.weight", heads * head_dim)
        k = g.linear(at + "k", h, of + "self_attn.k_proj.weight", kv_heads * head_dim)
        v = g.linear(at + "v", h, of + "self_attn.v_proj.weight", kv_heads * head_dim)
        q = g.rms_norm_heads(q, of + "self_attn.q_norm.weight", head_dim, eps)
        k = g.rms_norm_heads(k, of + "self_attn.k_norm.weight", head_dim, eps)
        g.kv_write(g.rope(k, table, head_dim, pairs), v, "kv", layer)
        attended = g.attention(at + "attended", g.rope(q, table, head_dim, pairs), "kv", layer, head_dim**-0.5)
        x = g.add(at + "mid", x, g.linear(at + "o", attended, of + "self_attn.o_proj.weight", hidden))
        h = g.rms_norm(at + "mlp_in", x, of + "post_attention_layernorm.weight", eps)
        gate = g.linear(at + "gate", h, of + "mlp.gate_proj.weight", ffn)
        up = g.linear(at + "up", h, of + "mlp.up_proj.weight", ffn)
        active = g.silu_mul(at + "active", gate, up)
        x = g.add(at + "out", x, g.linear(at + "down", active, of + "mlp.down_proj.weight", hidden))
    last = g.rms_norm("last_in", g.gather("last", x), "model.norm.weight", eps)
    logits = g.linear("logits", last, _EMBEDDING if tied else _HEAD, vocab)
    # A tied model's file may store the embedding a second time under the head's name.
    return g.finish(logits, frozenset({_HEAD}) if tied else frozenset())
