"""Small graphs, reports and checkpoints for the tests of lowering."""

from __future__ import annotations

from copy import deepcopy

from pih_runtime.plan import Limits
from pih_steps.lower import Builder, Tensor, lower, parse_report
from pih_steps.lower.checkpoint import Checkpoint, no_bytes
from pih_steps.lower.plugin import load_graph
from tests.support.program import ROOT

LLAMA = load_graph(ROOT / "plugins/model/llama")
LIMITS = Limits(tokens=8, seqs=2, context=32)
ISA = "x86-64-v3"


def kernel(op, weight="", layout="", activation="f32", constants=(), **more):
    return {
        "op": op, "weight": weight, "layout": layout, "activation": activation, "isa": [ISA], "source": f"{op}.h",
        "template": "_".join(filter(None, (op, weight))), "constants": list(constants), "precision": "exact",
        "mode": "f32", **more,
    }  # fmt: skip


def table(*kernels, layouts=(("rows", 1), ("tile16", 16)), activations=()):
    return {
        "kernel": deepcopy(list(kernels)),
        "layout": [{"name": name, "rows": rows} for name, rows in layouts],
        "activation": list(activations),
    }


I16 = {"name": "i16", "group": 32, "bytes_per_group": 72}
PLAIN = (
    kernel("rms_norm", "f32", "rows", constants=["columns", "groups", "eps_bits"]),
    kernel("rope_table", "f32", "rows"),
    kernel("rope", constants=["columns", "head_dim", "pairs"]),
    kernel("kv_write", constants=["kv_heads", "head_dim", "page_size", "kv"]),
    kernel("attention", constants=["heads", "kv_heads", "head_dim", "page_size", "kv", "scale_bits"]),
    kernel("silu_mul", constants=["columns"]),
    kernel("gather"),
    kernel("sample", constants=["v"]),
)
FLOAT = (
    kernel("embed", "f32", "rows", constants=["n", "k"]),
    kernel("linear", "f32", "rows", constants=["n", "k", "accumulate"]),
)
QUANTIZED = (
    kernel("embed", "q4_1", "tile16", constants=["n", "k"]),
    kernel("linear", "q4_1", "tile16", "i16", ["n", "k", "accumulate"], multiple={"k": 32}),
    kernel("quantize", activation="i16", constants=["columns"]),
)


def report(*kernels, **more):
    return parse_report(table(*(kernels or (*PLAIN, *FLOAT)), **more), ISA, "kernels/test")


def quantized_report():
    return report(*PLAIN, *QUANTIZED, activations=[I16])


CONFIG = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 48, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "max_position_embeddings": 64, "tie_word_embeddings": True,
}  # fmt: skip


def llama_tensors(format_="f32", norm="f32", layers=2):
    """The table that CONFIG describes."""
    shapes = {
        "q": (64, 64),
        "k": (32, 64),
        "v": (32, 64),
        "o": (64, 64),
        "gate": (96, 64),
        "up": (96, 64),
        "down": (64, 96),
    }
    tensors = {"model.embed_tokens.weight": Tensor(format_, (48, 64)), "model.norm.weight": Tensor(norm, (64,))}
    for layer in range(layers):
        for name, shape in shapes.items():
            block = "self_attn" if name in "qkvo" else "mlp"
            tensors[f"model.layers.{layer}.{block}.{name}_proj.weight"] = Tensor(format_, shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = Tensor(norm, (64,))
    return tensors


def checkpoint(tensors=None, **config):
    return Checkpoint("model.gguf", {**CONFIG, **config}, tensors or llama_tensors(), no_bytes("model.gguf"))


def lowered(source=None, pack=None, limits=LIMITS, **options):
    """The small Llama, bound to the plain report."""
    return lower(source or checkpoint(), LLAMA, pack or report(), limits, **options)


def builder(**shapes):
    """A builder over float32 tensors of these shapes."""
    return Builder("test", {name: Tensor("f32", shape) for name, shape in shapes.items()})


def calls(graph):
    """op, operands as text; for reading in assertions."""
    shown = []
    for node in graph.nodes:
        operands = [
            o.weight or (f"{o.cache}/{o.layer}" if o.cache else f"{o.buffer}[{o.column}:{o.column + o.columns}]")
            for o in node.operands
        ]
        shown.append(" ".join([node.op, *operands]))
    return shown
