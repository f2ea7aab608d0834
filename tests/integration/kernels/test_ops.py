"""Every op but linear and sample: against its formula in float64 and its scalar reference, whatever the sharing."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from tests.integration.kernels.formats import FORMATS, aligned, bf16_round, bf16_value
from tests.integration.kernels.packs import binding

EPS = struct.unpack("<I", struct.pack("<f", 1e-6))[0]
SCALE = struct.unpack("<I", struct.pack("<f", 64**-0.5))[0]
# heads, kv heads, head size, page size, kv dtype
ATTENTION = [(4, 2, 64, 16, 1), (9, 3, 64, 16, 0), (16, 8, 128, 32, 1), (6, 1, 32, 16, 1), (2, 2, 16, 16, 0)]
BINDINGS = [
    *(one for name in FORMATS for one in binding(f"embed_{name}", "embed.h", n=80, k=96)),
    *binding("rms_norm", "rms_norm.h", columns=576, groups=1, eps_bits=EPS),
    *binding("rms_norm", "rms_norm.h", columns=256, groups=4, eps_bits=EPS),
    *binding("rms_norm", "rms_norm.h", columns=20, groups=1, eps_bits=EPS),
    *binding("silu_mul", "silu_mul.h", columns=1536),
    *binding("silu_mul", "silu_mul.h", columns=45),
    *binding("gather", "gather.h", columns=50),
    *binding("rope_table", "rope.h", columns=128),
    *(one for pairs in (0, 1) for one in binding("rope", "rope.h", columns=256, head_dim=64, pairs=pairs)),
    *binding("rope", "rope.h", columns=24, head_dim=12, pairs=0),
    *(
        one
        for heads, kv_heads, head_dim, page_size, kv in ATTENTION
        for one in binding("kv_write", "kv_write.h", kv_heads=kv_heads, head_dim=head_dim, page_size=page_size, kv=kv)
        + binding(
            "attention",
            "attention.h",
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            kv=kv,
            scale_bits=SCALE,
        )
    ),
]


def normal(seed, *shape):
    return aligned(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def zeros(*shape):
    return aligned(np.zeros(shape, np.float32))


@pytest.mark.parametrize("suffix", ["", "_ref"])
@pytest.mark.parametrize("name", FORMATS)
def test_embed_gives_the_row_of_the_id_or_of_the_last_sampled(team, name, suffix):
    here = team(BINDINGS, threads=2)
    weight, values = FORMATS[name](np.random.default_rng(2), 80, 96)
    y = zeros(5, 96)
    calls = [(f"embed_{name}{suffix}_n80_k96", 0, [weight, y])]
    here.run(calls, tokens=5, ids=[0, 79, -2, 17, -1], sampled=[33, 44])
    assert np.allclose(y, values[[0, 79, 44, 17, 33]], rtol=1e-6, atol=0)


@pytest.mark.parametrize("suffix", ["", "_ref"])
@pytest.mark.parametrize(("columns", "groups"), [(576, 1), (256, 4), (20, 1)])
def test_rms_norm(team, columns, groups, suffix):
    here = team(BINDINGS, threads=2)
    x, weight = normal(1, 7, columns), normal(2, columns // groups)
    x[3] *= 1e-4
    split = x.astype(np.float64).reshape(7, groups, -1)
    wanted = (split / np.sqrt((split**2).mean(2, keepdims=True) + 1e-6) * weight).reshape(7, columns)
    call = (f"rms_norm{suffix}_columns{columns}_groups{groups}_eps_bits{EPS}", 0)
    y = zeros(7, columns)
    here.run([(*call, [x, weight, y])], tokens=7)
    assert np.allclose(y, wanted, rtol=1e-6, atol=0)
    here.run([(*call, [x, weight, x])], tokens=7)
    assert np.array_equal(x, y)


@pytest.mark.parametrize("suffix", ["", "_ref"])
@pytest.mark.parametrize("columns", [1536, 45])
def test_silu_mul(team, columns, suffix):
    here = team(BINDINGS, threads=2)
    gate, up, y = normal(1, 5, columns) * 4, normal(2, 5, columns), zeros(5, columns)
    gate[0, :9] = [0, 90, -90, 1e4, -1e4, 87.5, -87.5, 1e-30, -1e-30]
    here.run([(f"silu_mul{suffix}_columns{columns}", 0, [aligned(gate), up, y])], tokens=5)
    wide = gate.astype(np.float64)
    wanted = wide / (1 + np.exp(-np.clip(wide, -700, None))) * up
    assert np.allclose(y, wanted, rtol=5e-7, atol=1e-30)


@pytest.mark.parametrize("suffix", ["", "_ref"])
def test_gather_and_calls_over_wanted_rows(team, suffix):
    here = team(BINDINGS, threads=2)
    x, y = normal(1, 6, 50), zeros(3, 50)
    here.run([(f"gather{suffix}_columns50", 0, [x, y])], tokens=6, wanted=3, rows=[5, 0, 5])
    assert np.array_equal(y, x[[5, 0, 5]])
    z, weight, full = normal(3, 6, 20), normal(4, 20), np.full((6, 20), 7, np.float32)
    here.run([(f"rms_norm{suffix}_columns20_groups1_eps_bits{EPS}", 1, [z, weight, full])], tokens=6, wanted=2)
    assert (full[2:] == 7).all()
    assert not (full[:2] == 7).any()


def test_rope_table_is_the_rounded_sine_of_the_float32_angle(team):
    here = team(BINDINGS, threads=2)
    positions = [0, 1, 2, 100, 4095, 32767, 40959, 1_000_000]
    inv_freq = aligned((1e6 ** (-np.arange(0, 128, 2) / 128)).astype(np.float32))
    y = zeros(len(positions), 128)
    here.run([("rope_table_columns128", 0, [inv_freq, y])], tokens=len(positions), positions=positions)
    angle = (np.array(positions, np.float32)[:, None] * inv_freq).astype(np.float64)
    wanted = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    assert np.array_equal(y, wanted.astype(np.float32))


@pytest.mark.parametrize("suffix", ["", "_ref"])
@pytest.mark.parametrize(("columns", "head_dim", "pairs"), [(256, 64, 0), (256, 64, 1), (24, 12, 0)])
def test_rope_rotates_pairs(team, columns, head_dim, pairs, suffix):
    here = team(BINDINGS, threads=2)
    x, angle = normal(1, 5, columns), normal(2, 5, head_dim // 2)
    table = aligned(np.concatenate([np.cos(angle), np.sin(angle)], 1))
    heads = x.reshape(5, -1, head_dim)
    half = head_dim // 2
    first, second = (slice(0, half), slice(half, None)) if pairs == 0 else (slice(0, None, 2), slice(1, None, 2))
    turned = heads[..., first] + 1j * heads[..., second]
    turned = turned * (table[:, None, :half] + 1j * table[:, None, half:])
    wanted = np.zeros_like(heads)
    wanted[..., first], wanted[..., second] = turned.real, turned.imag
    call = f"rope{suffix}_columns{columns}_head_dim{head_dim}_pairs{pairs}"
    here.run([(call, 0, [x, table, x])], tokens=5)
    assert np.allclose(x, wanted.reshape(5, columns), atol=1e-6)


class Cached:
    """Sequences of random keys and values, in a cache of shuffled pages written by kv_write."""

    def __init__(self, here, shape, lengths, seed=0):
        self.here, self.shape, self.lengths = here, shape, lengths
        self.heads, kv_heads, head_dim, page_size, kv = shape
        rng = np.random.default_rng(seed)
        self.pages_per_seq = (max(lengths) - 1) // page_size + 1
        pages = len(lengths) * self.pages_per_seq
        self.table = rng.permutation(pages).astype(np.int32).reshape(len(lengths), -1)
        blank = np.full((2, pages, kv_heads, page_size, head_dim), np.nan, np.float32)
        self.cache = aligned(blank if kv == 0 else bf16_round(rng.standard_normal(blank.shape)))
        if kv == 0:
            self.cache[...] = rng.standard_normal(self.cache.shape)
        self.keys, self.values = (
            [rng.standard_normal((n, kv_heads, head_dim)).astype(np.float32) for n in lengths] for _ in range(2)
        )
        columns = kv_heads * head_dim
        k, v = (aligned(np.concatenate(part).reshape(-1, columns)) for part in (self.keys, self.values))
        slots = [
            int(self.table[s, p // page_size]) * page_size + p % page_size
            for s, n in enumerate(lengths)
            for p in range(n)
        ]
        symbol = f"kv_write_kv_heads{kv_heads}_head_dim{head_dim}_page_size{page_size}_kv{kv}"
        here.run([(symbol, 0, [k, v, self.cache])], tokens=len(slots), slots=slots)
        if kv == 1:
            self.keys, self.values = (
                [bf16_value(bf16_round(one)) for one in part] for part in (self.keys, self.values)
            )

    def attend(self, q, seq_of, positions, *, suffix="", parts=0):
        """q [T, heads*head_dim]; tokens of one sequence are neighbours."""
        names = ("heads", "kv_heads", "head_dim", "page_size", "kv")
        constants = "".join(f"_{name}{value}" for name, value in zip(names, self.shape, strict=True))
        order = sorted(set(seq_of), key=seq_of.index)
        starts = [0]
        for sequence in order:
            starts.append(starts[-1] + seq_of.count(sequence))
        y = zeros(*q.shape)
        symbol = f"attention{suffix}{constants}_scale_bits{SCALE}"
        self.here.run(
            [(symbol, 0, [q, self.cache, y])], parts=parts, tokens=len(q), seq_start=starts, positions=positions,
            page_table=self.table[order].ravel().tolist(), pages_per_seq=self.pages_per_seq,
        )  # fmt: skip
        return y

    def formula(self, q, seq_of, positions):
        heads, kv_heads, head_dim, _, _ = self.shape
        rows = []
        for row, sequence, position in zip(q.astype(np.float64), seq_of, positions, strict=True):
            k = self.keys[sequence][: position + 1].astype(np.float64).repeat(heads // kv_heads, 1)
            v = self.values[sequence][: position + 1].astype(np.float64).repeat(heads // kv_heads, 1)
            scores = np.einsum("hd,phd->hp", row.reshape(heads, head_dim), k) * float(np.float32(64**-0.5))
            weights = np.exp(scores - scores.max(1, keepdims=True))
            rows.append(np.einsum("hp,phd->hd", weights / weights.sum(1, keepdims=True), v).ravel())
        return np.array(rows)


@pytest.mark.parametrize("shape", ATTENTION)
def test_attention_over_ragged_sequences(team, shape):
    cached = Cached(team(BINDINGS, threads=2), shape, [1, 17, 70])
    seq_of = [0, 1, 1, 1, 2, 2, 2, 2]
    positions = [0, 0, 15, 16, 3, 32, 63, 69]
    q = normal(5, len(seq_of), shape[0] * shape[2]) * 2
    wanted = cached.formula(q, seq_of, positions)
    assert np.allclose(cached.attend(q, seq_of, positions), wanted, rtol=2e-6, atol=2e-6)
    assert np.allclose(cached.attend(q, seq_of, positions, suffix="_ref"), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("shape", ATTENTION)
def test_attention_of_a_token_does_not_depend_on_its_company(team, shape):
    cached = Cached(team(BINDINGS, threads=2), shape, [50, 70])
    seq_of, positions = [0] * 5 + [1] * 6, [45, 46, 47, 48, 49, 0, 1, 20, 33, 64, 69]
    q = normal(5, len(seq_of), shape[0] * shape[2])
    whole = cached.attend(q, seq_of, positions)
    for t, (sequence, position) in enumerate(zip(seq_of, positions, strict=True)):
        for parts in (1, 2, 5):
            assert np.array_equal(cached.attend(q[t : t + 1], [sequence], [position], parts=parts), whole[t : t + 1])
    for parts in (1, 3, 11, 40):
        assert np.array_equal(cached.attend(q, seq_of, positions, parts=parts), whole)


def test_attention_with_far_scores_stays_finite(team):
    shape = ATTENTION[0]
    cached = Cached(team(BINDINGS), shape, [40])
    q = normal(5, 1, shape[0] * shape[2]) * 1000
    assert np.allclose(cached.attend(q, [0], [39]), cached.formula(q, [0], [39]), rtol=1e-4, atol=1e-4)


def test_kv_write_rounds_to_nearest_even_and_keeps_what_is_not_a_number(team):
    _, kv_heads, head_dim, page_size, _ = ATTENTION[0]
    here = team(BINDINGS, threads=2)
    cache = aligned(np.zeros((2, 1, kv_heads, page_size, head_dim), np.uint16))
    k = zeros(1, kv_heads * head_dim)
    specials = [1.00390625, 1.01171875, math.inf, -math.inf, math.nan, 3.4e38, -0.0, 1e-40]
    k[0, : len(specials)] = specials
    symbol = f"kv_write_kv_heads{kv_heads}_head_dim{head_dim}_page_size{page_size}_kv1"
    here.run([(symbol, 0, [k, k, cache])], tokens=1, slots=[3])
    stored = bf16_value(cache[0, 0, 0, 3, : len(specials)])
    assert stored[:4].tolist() == [1.0, 1.015625, math.inf, -math.inf]
    assert math.isnan(stored[4])
    assert stored[5] == math.inf
    assert np.array_equal(cache[0], cache[1])
    assert not cache[0, 0, 0, :3].any()
    assert not cache[0, 0, 0, 4:].any()
