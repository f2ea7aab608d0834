"""The shapes that the kernels are compiled for here: small, and odd where a kernel could mind."""

from __future__ import annotations

from dataclasses import dataclass

from tests.integration.cuda.kernels.checks import EPS
from tests.integration.cuda.kernels.made import binding, bits

SCALE = 0.25
LINEAR = [(16, 32), (16, 96), (48, 288), (80, 512), (16, 4128)]  # N x K; K may have fewer blocks than a sum has parts
EMBED = (80, 4128)
NORM = [(64, 1), (128, 4), (258, 1), (96, 3), (1152, 9), (4098, 1)]  # columns, groups
ROWS = [2, 96, 514, 4098]
SILU = [2, 96, 1026, 4098]
ROPE_TABLE = [32, 64, 128, 160]
ROPE = [(64, 32), (192, 64), (640, 128), (24, 12)]  # columns, head_dim
KV_WRITE = [(1, 32), (3, 64), (2, 128)]  # kv heads, head_dim
# heads, kv heads, head_dim, pairs
ROPE_KV_WRITE = [(2, 1, 32, 0), (3, 3, 64, 1), (8, 2, 128, 0), (9, 1, 16, 1)]
VOCAB = [50, 1000, 5003, 70001]


FAR_K = 8192  # columns of a weight whose last 64 rows lie past 4 GiB, and how many rows it has
FAR_BF16, FAR_INT8 = 64 + (1 << 18), 64 + (1 << 19)


@dataclass(frozen=True)
class Attention:
    """A shape of attention, and the limits of the plan that it is compiled for."""

    heads: int
    kv_heads: int
    head_dim: int
    positions: int = 512
    seqs: int = 4

    @property
    def constants(self):
        return {**vars(self), "scale_bits": bits(SCALE)}


GROUPS = [  # of 1, 2, 3, 4, 8 and 16 query heads to a kv head
    Attention(2, 2, 32), Attention(4, 2, 128), Attention(6, 2, 64), Attention(4, 1, 128), Attention(8, 1, 64),
    Attention(16, 1, 32),
]  # fmt: skip
FULL = Attention(16, 1, 32, positions=1024, seqs=3)  # rows of a record in all warps
LONG = Attention(2, 1, 32, positions=32768, seqs=2)

BINDINGS = [
    *(binding("linear_bf16", n=n, k=k, accumulate=accumulate) for n, k in LINEAR for accumulate in (0, 1)),
    *(binding("linear_int8", n=n, k=k, accumulate=accumulate) for n, k in LINEAR[1:] for accumulate in (0, 1)),
    *(
        binding(f"{op}_{weight}", n=n, k=FAR_K, **more)
        for op, more in (("linear", {"accumulate": 0}), ("embed", {}))
        for weight, n in (("bf16", FAR_BF16), ("int8", FAR_INT8))
    ),
    *(binding(template, n=EMBED[0], k=EMBED[1]) for template in ("embed_bf16", "embed_int8")),
    *(binding("rms_norm", columns=columns, groups=groups, eps_bits=bits(EPS)) for columns, groups in NORM),
    *(
        binding(template, columns=columns, eps_bits=bits(EPS))
        for columns, groups in NORM
        for template in ("rms_norm_bf16", "gather_rms_norm_bf16")
        if groups == 1
    ),
    *(binding(template, columns=columns) for columns in ROWS for template in ("gather", "quantize_bf16", "add")),
    *(binding(template, columns=columns) for columns in SILU for template in ("silu_mul", "silu_mul_bf16")),
    *(binding("rope_table", columns=columns) for columns in ROPE_TABLE),
    *(binding("rope", columns=columns, head_dim=d, pairs=pairs) for columns, d in ROPE for pairs in (0, 1)),
    *(binding("rope", columns=(h + kv) * d, head_dim=d, pairs=pairs) for h, kv, d, pairs in ROPE_KV_WRITE),
    *(binding("kv_write", kv_heads=kv_heads, head_dim=head_dim) for kv_heads, head_dim in KV_WRITE),
    *(
        binding(
            template, columns=(heads + kv_heads) * head_dim, kv_heads=kv_heads, head_dim=head_dim, pairs=pairs, **eps
        )
        for heads, kv_heads, head_dim, pairs in ROPE_KV_WRITE
        for template, eps in (("rope_kv_write", {}), ("norm_rope_kv_write", {"eps_bits": bits(EPS)}))
    ),
    *(binding(template, **a.constants) for a in GROUPS for template in ("attention", "attention_bf16")),
    *(binding("attention", **a.constants) for a in (FULL, LONG)),
    *(binding("sample", v=v) for v in VOCAB),
]
