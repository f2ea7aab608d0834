"""Kernels of the CUDA pack against their formulas in float64, one function an op; each fails on a kernel that errs.

How far a result may lie off is said by each, in terms of float32's and bf16's rounding: 2^-24 and 2^-8 of a value.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.integration.cuda.kernels.everywhere import SEEDS, run_everywhere
from tests.integration.cuda.kernels.layouts import Pages, mma16, mma16_int8
from tests.integration.cuda.kernels.made import bits, symbol
from tests.integration.cuda.kernels.rounding import (
    BF16,
    FLOAT,
    LEAST,
    bf16_normal,
    close,
    normal,
    rng,
    same_rounded,
    view,
    wide,
)
from tests.integration.kernels.formats import bf16_round, bf16_value
from tests.support.launches import WANTED, Cache, Step

EPS = 1e-6


def linear_case(n, k, tokens, seed=0):
    """(weight bits, x bits, y before)"""
    return bf16_round(normal(seed, n, k) * 0.1), bf16_normal(seed + 1, tokens, k), normal(seed + 2, tokens, n)


def linear(here, weight, x, y, accumulate, *, seeds=SEEDS):
    """weight: bf16 bits [N,K]. See `_linear`."""
    return _linear(here, "linear_bf16", mma16(weight), bf16_value(weight), x, y, accumulate, seeds)


def linear_int8(here, weight, scales, x, y, accumulate, *, seeds=SEEDS):
    """weight: int8 [N,K], of whose sums each is multiplied by its row's scale, [N]. See `_linear`."""
    values = weight.astype(np.float64) * scales[:, None]
    return _linear(here, "linear_int8", mma16_int8(weight, scales), values, x, y, accumulate, seeds)


def _linear(here, template, packed, values, x, y, accumulate, seeds):
    """float32 sums of exact products: off by no more than 2^-20 of the sum of their sizes, and k denormals. Gives y."""
    n, k = values.shape
    x_held, x_columns = wide(x, left=8, right=16, sentinel=0x7FC1)
    y_held, y_columns = wide(y, left=3, right=1)
    views, _ = run_everywhere(
        here,
        symbol(template, n=n, k=k, accumulate=accumulate),
        [(x_held, x_columns), packed, (y_held, y_columns)],
        Step(len(x)),
        seeds=seeds,
    )
    found = view(views[2], y_columns)
    exact_x, exact_w = bf16_value(x).astype(np.float64), values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wanted = exact_x @ exact_w.T + (y if accumulate else 0)
        sizes = np.abs(exact_x) @ np.abs(exact_w).T + (np.abs(y) if accumulate else 0)
    close(found, wanted, 2.0**-20 * sizes + k * 2.0**-149)
    return found


def embed_int8(here, table, scales, ids):
    """A byte times its row's scale, rounded once."""
    n, k = table.shape
    y, columns = wide(np.zeros((len(ids), k), np.float32), left=2, right=6)
    operands = [mma16_int8(table, scales), (y, columns)]
    views, _ = run_everywhere(here, symbol("embed_int8", n=n, k=k), operands, Step(len(ids), ids=ids))
    assert np.array_equal(view(views[1], columns), table[ids].astype(np.float32) * scales[ids][:, None])


def embed(here, table, ids, sampled):
    """Exact; an id may be that last sampled in a slot."""
    n, k = table.shape
    held, columns = wide(np.zeros((len(ids), k), np.float32), left=2, right=6)
    step = Step(len(ids), ids=ids, sampled=sampled)
    views, after = run_everywhere(here, symbol("embed_bf16", n=n, k=k), [mma16(table), (held, columns)], step)
    rows = [sampled[-token - 1] if token < 0 else token for token in ids]
    assert np.array_equal(view(views[1], columns).view(np.uint32), table[rows].astype(np.uint32) << 16)
    assert list(after) == list(sampled)


def _normed(x, weight, eps=EPS):
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def rms_norm(here, x, weight, groups, *, in_place=False):
    """Off by no more than sqrt(columns) + 8 roundings."""
    rows, columns = x.shape
    name = symbol("rms_norm", columns=columns, groups=groups, eps_bits=bits(EPS))
    held, inside = wide(x)
    target = (held, inside) if in_place else wide(np.zeros_like(x), left=5, right=2)
    views, _ = run_everywhere(here, name, [(held, inside), weight, target], Step(rows))
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = _normed(x.reshape(rows, groups, -1), weight).reshape(rows, columns)
    close(view(views[2], target[1]), wanted, np.abs(wanted) * (columns**0.5 + 8) * FLOAT + LEAST)


def rms_norm_bf16(here, x, weight, *, wanted_rows=None):
    """As `rms_norm`, then rounded. wanted_rows: of gather, where that comes first."""
    rows, columns = x.shape
    template = "rms_norm_bf16" if wanted_rows is None else "gather_rms_norm_bf16"
    chosen = np.arange(rows) if wanted_rows is None else np.asarray(wanted_rows)
    y = wide(np.zeros((len(chosen), columns), np.uint16), left=2, right=8, sentinel=9)
    step = Step(rows) if wanted_rows is None else Step(rows, wanted=len(chosen), rows=chosen)
    views, _ = run_everywhere(
        here,
        symbol(template, columns=columns, eps_bits=bits(EPS)),
        [wide(x), weight, y],
        step,
        axis=0 if wanted_rows is None else WANTED,
    )
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = _normed(x[chosen], weight)
    close(view(views[2], y[1], 9), wanted, np.abs(wanted) * (BF16 + (columns**0.5 + 8) * FLOAT) + LEAST)


def copies(here, x, wanted_rows):
    """quantize rounds to nearest even, gather copies: both to the bit, NaNs staying NaNs."""
    rows, columns = x.shape
    y, inside = wide(np.zeros((rows, columns), np.uint16), left=2, right=2, sentinel=9)
    views, _ = run_everywhere(here, symbol("quantize_bf16", columns=columns), [wide(x), (y, inside)], Step(rows))
    nan = np.isnan(x)
    found = view(views[1], inside, 9)
    assert np.array_equal(found[~nan], bf16_round(x)[~nan])
    assert np.isnan(bf16_value(found[nan])).all()
    y, inside = wide(np.zeros((len(wanted_rows), columns), np.float32))
    step = Step(rows, wanted=len(wanted_rows), rows=wanted_rows)
    views, _ = run_everywhere(here, symbol("gather", columns=columns), [wide(x), (y, inside)], step, axis=WANTED)
    assert np.array_equal(view(views[1], inside).view(np.uint32), x[wanted_rows].view(np.uint32))


def add(here, x, y):
    """One rounding."""
    rows, columns = x.shape
    held, inside = wide(y, left=2, right=4)
    views, _ = run_everywhere(here, symbol("add", columns=columns), [wide(x), (held, inside)], Step(rows))
    with np.errstate(invalid="ignore", over="ignore"):
        assert np.array_equal(view(views[1], inside), y + x, equal_nan=True)


def silu_mul(here, gate, up):
    """Four roundings and the exponential's; where exp overflows, -0 stands for what is below 3e-37."""
    rows, columns = gate.shape
    both = np.concatenate([gate, up], 1)
    operands = [(both, slice(0, columns)), (both, slice(columns, 2 * columns))]
    y, inside = wide(np.zeros_like(gate), left=2, right=4)
    views, _ = run_everywhere(here, symbol("silu_mul", columns=columns), [*operands, (y, inside)], Step(rows))
    with np.errstate(invalid="ignore", over="ignore"):
        precise = gate.astype(np.float64)
        wanted = precise / (1 + np.exp(-precise)) * up
        error = np.abs(wanted) * 8 * FLOAT + 3e-37 * np.abs(np.nan_to_num(up, posinf=0, neginf=0)) + LEAST
    found = view(views[2], inside)
    close(found, wanted, error)
    y, inside = wide(np.zeros(gate.shape, np.uint16), left=2, right=2, sentinel=9)
    views, _ = run_everywhere(here, symbol("silu_mul_bf16", columns=columns), [*operands, (y, inside)], Step(rows))
    same_rounded(view(views[2], inside, 9), found)


def rope_table(here, positions, inv_freq):
    """The angle is a float32 product; cosine and sine to 2^-22."""
    half = len(inv_freq)
    y, inside = wide(np.zeros((len(positions), 2 * half), np.float32))
    step = Step(len(positions), positions=positions)
    views, _ = run_everywhere(here, symbol("rope_table", columns=2 * half), [inv_freq, (y, inside)], step)
    angles = (np.asarray(positions, np.float32)[:, None] * inv_freq).astype(np.float64)
    close(view(views[1], inside), np.concatenate([np.cos(angles), np.sin(angles)], 1), 2.0**-22)


def turned(x, table, adjacent):
    """x [T,H,D] turned by table [T,D], in float64; and the sizes of what was added."""
    d = x.shape[-1]
    first, second = (slice(0, None, 2), slice(1, None, 2)) if adjacent else (slice(0, d // 2), slice(d // 2, d))
    x, c, s = (
        x.astype(np.float64),
        table[:, None, : d // 2].astype(np.float64),
        table[:, None, d // 2 :].astype(np.float64),
    )
    made, size = np.empty_like(x), np.empty_like(x)
    with np.errstate(invalid="ignore"):
        made[..., first], made[..., second] = (
            x[..., first] * c - x[..., second] * s,
            x[..., second] * c + x[..., first] * s,
        )
        size[..., first] = np.abs(x[..., first] * c) + np.abs(x[..., second] * s)
        size[..., second] = np.abs(x[..., second] * c) + np.abs(x[..., first] * s)
    return made, size


def table_of(positions, head_dim):
    angles = np.asarray(positions)[:, None] * 1e4 ** (-2 * np.arange(head_dim // 2) / head_dim)
    return np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def rope(here, x, head_dim, adjacent, first=0):
    """Two roundings of what is added. Gives the turned rows, whose positions go up from the first."""
    rows, columns = x.shape
    table = table_of(range(first, first + rows), head_dim)
    held, inside = wide(x, left=1, right=2)
    name = symbol("rope", columns=columns, head_dim=head_dim, pairs=int(adjacent))
    views, _ = run_everywhere(here, name, [(held, inside), table, (held, inside)], Step(rows))
    wanted, size = turned(x.reshape(rows, -1, head_dim), table, adjacent)
    found = view(views[0], inside)
    close(found, wanted.reshape(x.shape), 2 * FLOAT * size.reshape(x.shape) + LEAST)
    return found


def kv_write(here, kv_heads, head_dim, slots, pages=5, seed=0):
    """Rounded to nearest even, each where the layout says; no other place is touched."""
    k, v = (normal(seed + i, len(slots), kv_heads * head_dim) for i in (1, 2))
    k[0, 0], v[0, 1], k[-1, -1], v[-1, 0] = np.inf, -np.inf, 0, 1e-40
    cache = Pages(pages, kv_heads, head_dim)
    operands = [wide(k), wide(v, left=2), Cache(cache.bits)]
    name = symbol("kv_write", kv_heads=kv_heads, head_dim=head_dim)
    views, _ = run_everywhere(here, name, operands, Step(len(slots), slots=slots))
    wanted = Pages(pages, kv_heads, head_dim)
    shape = len(slots), kv_heads, head_dim
    wanted.put(slots, bf16_round(k).reshape(shape), bf16_round(v).reshape(shape))
    assert np.array_equal(views[2], wanted.bits)


def rope_kv_write(here, heads, kv_heads, head_dim, adjacent, *, tokens, norm, k_first=False, seed=0, change=None):
    """q as rope (after rms_norm) leaves it, k so and rounded in the cache, v rounded there; k and v themselves stay.

    change: what is done to q, k and v first, each [T, its columns].
    """
    q_columns, kv_columns = heads * head_dim, kv_heads * head_dim
    x = normal(seed, tokens, q_columns + 2 * kv_columns)
    at = [0, q_columns] if not k_first else [kv_columns, 0]
    q, k = slice(at[0], at[0] + q_columns), slice(at[1], at[1] + kv_columns)
    both, v = slice(0, q_columns + kv_columns), slice(q_columns + kv_columns, None)
    if change:
        change(x[:, q], x[:, k], x[:, v])
    table, slots = table_of(range(3, tokens + 3), head_dim), rng(seed).permutation(4 * 16)[:tokens]
    weights = [normal(seed + 5, head_dim), normal(seed + 6, head_dim)] if norm else []
    constants = {"columns": q_columns + kv_columns, "kv_heads": kv_heads, "head_dim": head_dim, "pairs": int(adjacent)}
    name = (
        symbol("norm_rope_kv_write", **constants, eps_bits=bits(EPS)) if norm else symbol("rope_kv_write", **constants)
    )
    cache = Pages(4, kv_heads, head_dim)
    operands = [*weights, (x, both), table, (x, k), (x, v), Cache(cache.bits)]
    step = Step(tokens, slots=slots)
    views, _ = run_everywhere(here, name, operands, step)
    found, written = views[len(weights)], views[-1]
    assert np.array_equal(found[:, k], x[:, k], equal_nan=True), "k was written"
    assert np.array_equal(found[:, v], x[:, v], equal_nan=True), "v was written"

    def heads_of(columns, weight):
        rows = x[:, columns].reshape(tokens, -1, head_dim)
        with np.errstate(invalid="ignore"):
            made, size = turned(_normed(rows, weight) if norm else rows, table, adjacent)
        return made, (2 + 12 * norm) * FLOAT * size + LEAST

    wanted, error = heads_of(q, weights[0] if norm else None)
    close(found[:, q], wanted.reshape(tokens, -1), error.reshape(tokens, -1))
    wanted, error = heads_of(k, weights[1] if norm else None)
    page, position = slots // 16, slots % 16
    keys = written[0].reshape(4, kv_heads, 16, head_dim)
    close(keys[page, :, position], wanted, error + BF16 * (np.abs(wanted) + error))
    places = Pages(4, kv_heads, head_dim)
    places.put(slots, keys[page, :, position], bf16_round(x[:, v]).reshape(tokens, kv_heads, head_dim))
    assert np.array_equal(written, places.bits), "a place of the cache that is not a token's"
    if not norm and not k_first:
        turned_rows = rope(here, x[:, both], head_dim, adjacent, first=3)
        assert np.array_equal(found[:, q], turned_rows[:, q], equal_nan=True)
        same_rounded(keys[page, :, position].reshape(tokens, -1), turned_rows[:, k])


def sample(here, logits, sampling, positions):
    """The ids of torch's implementation of the op. sampling: pih_runtime.step.Sampling of each row."""
    import torch
    from pih_backend_torch.sample import sample as oracle

    rows, v = logits.shape
    row_slots = rng(rows).permutation(rows + 2)[:rows]
    order = rng(rows + 1).permutation(rows + 3)[:rows]  # rows of the step that are wanted
    spread = np.zeros(rows + 3, np.int64)
    spread[order] = positions
    step = Step(
        rows + 3, wanted=rows, rows=order, row_slots=row_slots, positions=spread, sampled=[-1] * (rows + 2),
        sampling=[(s.temperature, s.top_k, s.top_p, s.min_p, s.seed) for s in sampling],
    )  # fmt: skip
    _, sampled = run_everywhere(here, symbol("sample", v=v), [wide(logits)], step, axis=WANTED, seeds=SEEDS[:2])
    single = [
        replace(s, **{n: float(np.float32(getattr(s, n))) for n in ("temperature", "top_p", "min_p")}) for s in sampling
    ]
    assert list(sampled[row_slots]) == oracle(torch.from_numpy(logits.copy()), single, positions)
    assert (np.delete(sampled, row_slots) == -1).all(), "another slot was written"
    return sampled[row_slots]
