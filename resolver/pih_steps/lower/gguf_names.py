"""GGUF's names in Hugging Face's words: tensor names and the keys of a decoder's config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pih_runtime.errors import BuildError

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Of a file's tensors' layout, and of scaling, which is only read where there is some.
_NEUTRAL = ("tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length")
# Writers of llama files permute the rows of q and k, so that a rotated pair lies side by side.
_PAIRS = {"llama": "adjacent", "qwen3": "half"}


def hf_name(name: str, where: str) -> str:
    """Hugging Face's name of a GGUF tensor."""
    if name in _WHOLE:
        return _WHOLE[name]
    match = re.fullmatch(r"blk\.(0|[1-9]\d{0,3})\.([a-z_]+)\.(weight|bias)", name)
    if match is None or match[2] not in _IN_LAYER:
        raise BuildError(
            f"tensor {name} is not part of a decoder that is known here",
            where=where,
            fix=f"take a file of one of the architectures {', '.join(_PAIRS)}",
        )
    return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"


def hf_config(metadata: Mapping[str, Any], tensors: set[str], where: str) -> dict[str, Any]:
    """A config as Hugging Face writes it, and `rope_pairs`: which values of a head are rotated together."""
    family = metadata.get("general.architecture")
    if not isinstance(family, str) or family not in _PAIRS:
        raise BuildError(
            f"the architecture {family!r} is not known here", where=where, fix=f"known are {', '.join(_PAIRS)}"
        )

    asked = {f"{family}.{key}" for key in _NEUTRAL}

    def number(key: str, kind: type, default: Any = None) -> Any:
        asked.add(f"{family}.{key}")
        value = metadata.get(f"{family}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise BuildError(f"metadata {family}.{key} is {value!r}, not {kind.__name__}", where=where)
        return value

    scaling = metadata.get(f"{family}.rope.scaling.type", "none")
    asked.add(f"{family}.rope.scaling.type")
    if scaling != "none":
        raise BuildError(f"metadata {family}.rope.scaling.type is {scaling!r}", where=where, fix="only 'none' is known")
    hidden, heads = number("embedding_length", int), number("attention.head_count", int)
    head_dim = number("attention.key_length", int, hidden // heads if heads > 0 else 0)
    if number("rope.dimension_count", int, head_dim) != head_dim:
        raise BuildError("only rotation of whole heads is known", where=where, fix=f"{family}.rope.dimension_count")
    if number("attention.value_length", int, head_dim) != head_dim:
        raise BuildError("keys and values of other lengths", where=where, fix=f"{family}.attention.value_length")
    vocab = metadata.get("tokenizer.ggml.tokens")
    config = {
        "model_type": family,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": head_dim,
        "intermediate_size": number("feed_forward_length", int),
        "max_position_embeddings": number("context_length", int),
        "num_attention_heads": heads,
        "num_hidden_layers": number("block_count", int),
        "num_key_value_heads": number("attention.head_count_kv", int, heads),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon", float),
        "rope_theta": number("rope.freq_base", float, 10000.0),
        "rope_pairs": _PAIRS[family],
        "tie_word_embeddings": "output.weight" not in tensors,
        "vocab_size": number("vocab_size", int, len(vocab) if isinstance(vocab, list) else None),
    }
    for key, value in metadata.items():
        if key.startswith(f"{family}.") and value and key not in asked:
            raise BuildError(
                f"metadata {key} is {value!r:.100}, of which nothing is known here",
                where=where,
                fix="take a file without it: what it changes would be wrong",
            )
    return config
