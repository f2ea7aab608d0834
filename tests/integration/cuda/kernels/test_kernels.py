"""Every kernel of the CUDA pack against its formula, through every entry that can run it; see `checks`."""

from __future__ import annotations

import numpy as np
import pytest

from pih_runtime.step import Sampling
from pih_steps.lower import pack
from tests.integration.cuda.kernels import checks, far, sizes, texts
from tests.integration.cuda.kernels.everywhere import run_everywhere
from tests.integration.cuda.kernels.layouts import mma16, mma16_int8
from tests.integration.cuda.kernels.made import TEMPLATES, symbol
from tests.integration.cuda.kernels.rounding import bf16_normal, normal, rng
from tests.integration.kernels.formats import bf16_round
from tests.support.launches import WANTED, Step

TOKENS = [1, 7, 8, 9, 31, 32, 33, 64, 65]
ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-45, 3.3e38, -1e30, 1e-30]


def odd_ones(x):
    """A matrix with edge values scattered over its rows."""
    x = x.copy()
    places = rng(len(x)).permutation(x.size)[: len(ODD)]
    x.reshape(-1)[places] = ODD[: len(places)]
    return x


def test_every_kernel_that_the_report_offers_is_here():
    assert {item["template"] for item in sizes.BINDINGS} == set(TEMPLATES)


def test_mma16_is_packed_as_its_formula_says():
    weight = bf16_normal(3, 48, 96)
    packed = pack._mma16_bf16(weight.view(np.uint8), 96)
    assert np.array_equal(packed.reshape(-1), mma16(weight).reshape(-1))


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize(("n", "k"), sizes.LINEAR)
def test_linear_whatever_the_tokens(here, n, k, accumulate):
    weight, x, y = checks.linear_case(n, k, 130)
    every = checks.linear(here, weight, x, y, accumulate, seeds=(1,))
    for tokens in TOKENS:
        found = checks.linear(here, weight, x[:tokens], y[:tokens], accumulate, seeds=(1, 2) if tokens < 10 else (3,))
        assert np.array_equal(found, every[:tokens]), "a row depends on its company"


def test_linear_of_what_is_not_finite_stays_in_its_row_and_column(here):
    weight, x, y = checks.linear_case(48, 288, 33)
    x[5, 17], x[32, 0], x[9, 40], x[10] = *bf16_round(np.float32([np.nan, np.inf, -np.inf])), 0
    x[11], weight[3, 100], weight[47, 7] = 0x0001, 0x0001, 0x7F80  # denormals, an infinite weight
    weight[20, 30] = 0x7FC0
    for accumulate in (0, 1):
        found = checks.linear(here, weight, x, y, accumulate)
        plain = np.isfinite(np.delete(np.delete(found, [5, 32, 9], 0), [20, 47], 1))
        assert plain.all()


def int8_case(n, k):
    weight = rng(n, k).integers(-127, 128, (n, k)).astype(np.int8)
    scales = np.abs(normal(k, n)) * np.float32(0.01)
    weight[:2, :4], scales[1] = [127, -127, 0, 1], 0
    return weight, scales


def test_mma16_of_int8_is_packed_as_its_formula_says():
    weight, scales = int8_case(48, 96)
    rows = np.concatenate([scales.view(np.uint8).reshape(48, 4), weight.view(np.uint8)], 1)
    assert np.array_equal(pack._mma16_int8(rows, 96), mma16_int8(weight, scales))


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize(("n", "k"), sizes.LINEAR[1:])
def test_linear_of_int8_whatever_the_tokens(here, n, k, accumulate):
    weight, scales = int8_case(n, k)
    _, x, y = checks.linear_case(n, k, 66)
    every = checks.linear_int8(here, weight, scales, x, y, accumulate, seeds=(1,))
    for tokens in (1, 8, 9, 33):
        found = checks.linear_int8(here, weight, scales, x[:tokens], y[:tokens], accumulate, seeds=(1, 2))
        assert np.array_equal(found, every[:tokens]), "a row depends on its company"


def test_embed_of_int8(here):
    checks.embed_int8(here, *int8_case(*sizes.EMBED), [0, 79, 1, 17, 16, 15, 8, 7])


def test_embed(here):
    n, k = sizes.EMBED
    table = bf16_normal(1, n, k)
    table[79, :4], table[16, 5] = [0x7FC1, 0x7F80, 0xFF80, 0x0001], 0x8000
    checks.embed(here, table, [0, 79, -2, 17, -1, 16, 15, 8, 7, 79, -3], [33, 44, 79])


@pytest.mark.parametrize(("columns", "groups"), sizes.NORM)
def test_rms_norm(here, columns, groups):
    x, weight = normal(1, 9, columns), normal(2, columns // groups)
    x[3], x[4], x[5] = x[3] * 1e-4, 0, x[5] * 1e15
    x[6, 0], x[7, columns - 1], x[8] = np.inf, np.nan, 1e-40
    for rows in (9, 1):
        checks.rms_norm(here, x[:rows], weight, groups)
    checks.rms_norm(here, x, weight, groups, in_place=True)
    if groups == 1:
        checks.rms_norm_bf16(here, x, weight)
        checks.rms_norm_bf16(here, x, weight, wanted_rows=[8, 0, 6, 3])


@pytest.mark.parametrize("columns", sizes.ROWS)
def test_quantize_and_gather(here, columns):
    x = odd_ones(normal(1, 9, columns))
    x[8, :2] = [1.00390625, 1.01171875]  # halfway between two bf16, below and above an odd one
    checks.copies(here, x, [8, 0, 5])
    checks.copies(here, x[:1], [0])


@pytest.mark.parametrize("columns", sizes.ROWS)
def test_add(here, columns):
    for rows in (9, 1):
        checks.add(here, odd_ones(normal(1, rows, columns)), odd_ones(normal(2, rows, columns))[::-1])


@pytest.mark.parametrize("columns", sizes.SILU)
def test_silu_mul(here, columns):
    gate, up = normal(1, 9, columns) * 4, odd_ones(normal(2, 9, columns))
    gate[8, :2], gate[7, :2], gate[6, :2], gate[5, :2] = [np.nan, np.inf], [-np.inf, -100], [0, -0.0], [1e-40, -88.5]
    for rows in (9, 1):
        checks.silu_mul(here, gate[:rows], up[:rows])


@pytest.mark.parametrize("columns", sizes.ROPE_TABLE)
def test_rope_table(here, columns):
    inv_freq = (1e6 ** (-2 * np.arange(columns // 2) / columns)).astype(np.float32)
    checks.rope_table(here, [0, 1, 7, 4095, 32767, 40000, 3], inv_freq)


@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize(("columns", "head_dim"), sizes.ROPE)
def test_rope(here, columns, head_dim, adjacent):
    x = normal(1, 9, columns)
    x[3, 1], x[4, 0], x[5, :], x[6, columns - 1] = np.nan, np.inf, 0, 1e-40
    for rows in (9, 1):
        checks.rope(here, x[:rows], head_dim, adjacent)


@pytest.mark.parametrize(("kv_heads", "head_dim"), sizes.KV_WRITE)
def test_kv_write(here, kv_heads, head_dim):
    checks.kv_write(here, kv_heads, head_dim, rng(1).permutation(80)[:21])
    checks.kv_write(here, kv_heads, head_dim, [79])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "pairs"), sizes.ROPE_KV_WRITE)
def test_rope_kv_write(here, heads, kv_heads, head_dim, pairs, norm):
    for tokens, k_first in ((17, False), (3, True), (1, False)):
        checks.rope_kv_write(here, heads, kv_heads, head_dim, pairs, tokens=tokens, norm=norm, k_first=k_first)


def odd_heads(q, k, v):
    """NaNs, infinities, zeros and numbers below full precision, a kind a token; v, whose bits are compared, no NaN."""
    for x, at in ((q, 1), (k, 2), (v, 3)):
        x[1, -at], x[2, at], x[3], x[4] = np.inf, -np.inf, 0, 1e-40
    for x in (q, k):
        x[0, 2], x[5, :2] = np.nan, (np.inf, np.nan)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("shape", sizes.ROPE_KV_WRITE[:2])
def test_rope_kv_write_of_what_is_not_finite(here, shape, norm):
    checks.rope_kv_write(here, *shape, tokens=8, norm=norm, change=odd_heads)


@pytest.mark.parametrize("shape", sizes.GROUPS, ids=lambda shape: f"{shape.heads}-{shape.kv_heads}-{shape.head_dim}")
def test_attention_of_prefill_pieces_and_decodes_is_the_same(here, shape):
    some = texts.Texts([33, 300, 1], shape.heads, shape.kv_heads, shape.head_dim)
    limits = shape.positions, shape.seqs
    every = texts.attention(here, some, [0, 260, 0], *limits, rounded=True, seeds=(1, 2))
    ends = every[[32, 72, 73]]
    decoded = texts.attention(here, some, [32, 299, 0], *limits, rounded=True, times=2)
    assert np.array_equal(decoded, ends)


@pytest.mark.parametrize("shape", [*sizes.GROUPS, sizes.FULL], ids=str)
def test_attention_where_every_sequence_is_at_its_end(here, shape):
    texts.at_their_ends(here, shape, seeds=(1, 2))


def test_attention_over_32k_positions(here):
    shape = sizes.LONG
    some = texts.Texts([32768, 32001], shape.heads, shape.kv_heads, shape.head_dim)
    decoded = texts.attention(here, some, [32767, 32000], shape.positions, shape.seqs, seeds=(1,))
    prefilled = texts.attention(here, some, [32760, 31999], shape.positions, shape.seqs, seeds=(2,))
    assert np.array_equal(decoded, prefilled[[7, 9]])


FAR = [far.attention, far.kv_write, far.linear, far.linear_int8, far.embed, far.embed_int8]


@pytest.mark.parametrize("check", FAR, ids=lambda check: check.__name__)
def test_pages_and_weights_past_4_gib(here, check):
    check(here)


def test_attention_of_what_is_not_finite(here):
    shape = sizes.GROUPS[1]
    some = texts.Texts([40, 290, 20], shape.heads, shape.kv_heads, shape.head_dim)
    some.q[0][38, 3] = np.nan  # one head of one token
    some.k[1][10, 1, 7] = 0x7FC0  # every token of a sequence after it, one kv head; alone in its chunk's warp
    some.k[1][0:16, 1] = 0x7FC0
    some.v[2][12, 0, 5] = 0x7FC0
    starts = [37, 288, 10]
    found = texts.attention(here, some, starts, shape.positions, shape.seqs, rows=[0, 2])
    found = found.reshape(-1, 2, 2, shape.head_dim)
    assert np.isnan(found[1, 0, 0]).all()
    assert np.isfinite(found[1, 0, 1]).all()
    assert np.isfinite(found[1, 1]).all()
    assert np.isnan(found[3:5, 1]).all()
    assert np.isfinite(found[3:5, 0]).all()
    assert np.isnan(found[7:, 0, :, 5]).all()
    assert np.isfinite(np.delete(found[5:], 5, 3)).all()
    assert np.isfinite(found[5:, 1]).all()


WISHES = [
    Sampling(temperature, top_k, top_p, min_p, seed)
    for seed, (temperature, top_k, top_p, min_p) in enumerate(
        [
            (0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.7, 20, 0.95, 0.0), (2.5, 0, 0.3, 0.0), (1.0, 1, 1.0, 0.0),
            (0.05, 0, 1.0, 0.05), (1.0, 7, 1.0, 0.5), (1.0, 0, 0.0, 0.0), (1.5, 49, 0.9, 0.02), (1.0, 10**6, 1.0, 1.0),
        ],
        2**63,
    )
]  # fmt: skip


@pytest.mark.parametrize(("v", "wishes"), [*((v, WISHES) for v in sizes.VOCAB[:-1]), (sizes.VOCAB[-1], WISHES[:3])])
def test_sample(here, v, wishes):
    checks.sample(here, normal(v, len(wishes), v) * 3, wishes, [3 * i for i in range(len(wishes))])


def test_sample_among_equals_takes_the_lowest_id_first(here):
    v = 1000
    logits = np.round(normal(v, len(WISHES), v))
    logits[logits == 0] = rng(1).choice([0.0, -0.0], (logits == 0).sum())
    checks.sample(here, logits, WISHES, range(len(WISHES)))
    checks.sample(here, np.zeros_like(logits), WISHES, range(len(WISHES)))
    assert checks.sample(here, np.full((1, v), -3, np.float32), [Sampling()], [0]) == [0]


def test_sample_where_one_id_is_possible(here):
    logits = np.full((len(WISHES), 50), -np.inf, np.float32)
    logits[:, 17] = -1e30
    assert list(checks.sample(here, logits, WISHES, range(len(WISHES)))) == [17] * len(WISHES)


@pytest.mark.parametrize("most", [np.nan, np.inf])
def test_sample_of_what_is_not_finite_is_an_id_all_the_same(here, most):
    logits = normal(1, len(WISHES), 50)
    logits[:, 31] = most
    step = Step(
        len(WISHES), wanted=len(WISHES), rows=range(len(WISHES)), row_slots=range(len(WISHES)), positions=range(10),
        sampled=[-1] * len(WISHES), sampling=[(w.temperature, w.top_k, w.top_p, w.min_p, w.seed) for w in WISHES],
    )  # fmt: skip
    _, sampled = run_everywhere(here, symbol("sample", v=50), [logits], step, axis=WANTED)
    assert list(sampled) == [31] * len(WISHES)


def test_sample_draws_as_often_as_the_softmax_says(here):
    logits = np.full((300, 50), -1e9, np.float32)
    logits[:, [3, 9, 30]] = np.log([0.5, 0.3, 0.2])
    counts = np.bincount(
        checks.sample(here, logits, [Sampling(1.0, seed=seed) for seed in range(300)], [5] * 300), minlength=50
    )
    assert np.allclose(counts[[3, 9, 30]] / 300, [0.5, 0.3, 0.2], atol=0.09)
