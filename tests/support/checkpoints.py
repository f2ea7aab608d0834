"""Small seeded checkpoints as safetensors files."""

import json

import numpy as np


def qwen3_shapes(config):
    """Names and shapes of the tensors of a Qwen3 with tied embeddings."""
    hidden, ffn, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    found = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        own = {
            "self_attn.q_proj": (q, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, q),
            "self_attn.q_norm": (dim,),
            "self_attn.k_norm": (dim,),
            "mlp.gate_proj": (ffn, hidden),
            "mlp.up_proj": (ffn, hidden),
            "mlp.down_proj": (hidden, ffn),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        found |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in own.items()}
    return found


def write(path, table, scale=0.05):
    """Write the tensors of `table` (name → dtype BF16, shape); bf16 is the upper half of float32.

    scale: of the layers' matrices. With small ones a model of tied embeddings says its last token again.
    """
    random = np.random.default_rng(20261129)
    content, offset, header = [], 0, {}
    for name, about in table.items():
        values = random.standard_normal(about["shape"]).astype(np.float32)
        values = values * (scale if ".layers." in name else 0.05) + (len(about["shape"]) == 1)
        data = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {**about, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        content.append(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(content))
