"""The op vocabulary: exact semantics of every op a plan may call.

Fixed on purpose: a kernel pack implements these and no others (but for collectives), the torch
backend is the executable oracle of the same text. Shapes: T tokens of the step, R rows whose
logits are wanted, S sequences; all arithmetic is in float32 unless an op says otherwise.

An operand is a buffer view (rows x columns of one planned buffer), a weight, or one
layer of a cache group (see `plan`). Values that every call can see, being part of the
step (see `step`): ids, positions, seq_start, page_table, slots, rows, sampling.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Op:
    """Signature of one op: operand names in call order (inputs, then outputs)."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[str, ...]
    formula: str


_OPS = (
    Op(
        "embed",
        ("table",),
        ("y",),
        (),
        "y[t] = table[id(t)]; id(t) = ids[t] where >= 0, else the id last sampled in slot -ids[t]-1. table [V,H]",
    ),
    Op(
        "rms_norm",
        ("x", "weight"),
        ("y",),
        ("eps",),
        "per group of D = len(weight) columns: y = x / sqrt(mean(x^2) + eps) * weight. "
        "x [T,G*D]; y may be x. One group is the usual norm, G = heads the per-head q/k norm",
    ),
    Op(
        "quantize",
        ("x",),
        ("y",),
        ("format",),
        "y = x in the activation format that a linear asks for (a pack's private layout, at least 16 bits a value)",
    ),
    Op(
        "linear",
        ("x", "weight"),
        ("y",),
        ("accumulate",),
        "y[t,n] = sum_k weight[n,k] * x[t,k], added to y where accumulate. weight [N,K]",
    ),
    Op(
        "rope_table",
        ("inv_freq",),
        ("y",),
        (),
        "a = float32(positions[t]) * inv_freq[i]; y[t] = cos(a[0..D/2)) then sin(a[0..D/2)). inv_freq [D/2]",
    ),
    Op(
        "rope",
        ("x", "table"),
        ("y",),
        ("head_dim", "pairs"),
        "rotate each head of x [T,H*D] by table [T,D]: (a,b) -> (a cos - b sin, b cos + a sin). "
        "pairs 'half': (i, i+D/2); 'adjacent': (2i, 2i+1). y is x, in place",
    ),
    Op(
        "kv_write",
        ("k", "v"),
        ("cache",),
        ("head_dim",),
        "cache row slots[t] of this layer = k[t], v[t], rounded to the cache's dtype. k, v [T,Hk*D]",
    ),
    Op(
        "attention",
        ("q", "cache"),
        ("y",),
        ("head_dim", "scale"),
        "causal over the token's own sequence, read through its page table: head h of q [T,Hq*D] sees kv head "
        "h // (Hq/Hk) at positions 0..positions[t]; y = softmax(scale * q.k) v",
    ),
    Op("silu_mul", ("gate", "up"), ("y",), (), "y = gate / (1 + exp(-gate)) * up"),
    Op("add", ("x",), ("y",), (), "y = y + x. x, y [T,C]"),
    Op("gather", ("x",), ("y",), (), "y[r] = x[rows[r]]; from T rows to R rows"),
    Op(
        "all_reduce",
        ("x",),
        ("y",),
        (),
        "y = the sum of x over the deployment's ranks, the same bits on every rank. x [T,C]; y is x, in place",
    ),
    Op(
        "all_gather",
        ("x",),
        ("y",),
        (),
        "the columns of every rank's x side by side, in order of rank: y[t, r*C+c] = x[t,c] of rank r. x [T,C], "
        "y [T,ranks*C]; R rows likewise",
    ),
    Op(
        "sample",
        ("logits",),
        (),
        (),
        "for each wanted row r, with its sampling parameters; the id is returned and kept as last sampled of its slot. "
        "temperature 0: the largest logit, lowest id first. Else: logits/temperature; order by (logit falling, id "
        "rising); keep the first top_k (0: all); p = softmax of what is kept; keep the shortest prefix with sum >= "
        "top_p; drop p < min_p * p[0]; draw u = uniform(seed, position) in [0,1) times the kept sum, take the first "
        "prefix sum > it. logits [R,V]",
    ),
)

OPS: dict[str, Op] = {op.name: op for op in _OPS}
# What ranks do together: the transport's part, in no kernel pack. Every rank calls the same ones in the same order.
COLLECTIVES = frozenset({"all_reduce", "all_gather"})
KERNEL_OPS = tuple(name for name in OPS if name not in COLLECTIVES)


def uniform(seed: int, position: int) -> float:
    """The draw of `sample` in [0,1): SplitMix64 of seed and position, top 24 bits.

    A function of the request's seed and the token's position alone, so that a sampled
    text does not depend on which other requests share its steps.
    (SplitMix64: Steele, Lea, Flood, OOPSLA 2014.)
    """
    mask = (1 << 64) - 1
    z = (seed + (position + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    return (z >> 40) / float(1 << 24)
