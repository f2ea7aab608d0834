"""y = W x in every weight format: against float64 and the scalar reference, bit for bit whatever the company."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.kernels.formats import FORMATS, aligned, i16g32_value
from tests.integration.kernels.packs import binding

SHAPES = [(64, 64), (80, 160), (17, 32), (256, 576), (1, 96)]
QUANTISED = ("q4_1", "q8_0")


def all_bindings():
    found = []
    for name in FORMATS:
        for n, k in SHAPES:
            for accumulate in (0, 1):
                found += binding(f"linear_{name}", f"linear_{name}.h", n=n, k=k, accumulate=accumulate)
    for k in sorted({k for _, k in SHAPES}):
        found += binding("quantize_i16g32", "quantize.h", columns=k)
    return found


def activations(team, name, x):
    """x as the linear of this format reads it, and the values it then stands for."""
    if name not in QUANTISED:
        return x, x.astype(np.float64)
    groups = aligned(np.zeros((len(x), x.shape[1] // 32 * 72), np.uint8))
    team.run([(f"quantize_i16g32_columns{x.shape[1]}", 0, [x, groups])], tokens=len(x))
    return groups, i16g32_value(groups)


def run(team, name, n, k, x, weight, *, y=None, suffix="", **options):
    y = aligned(np.zeros((len(x), n), np.float32)) if y is None else y
    accumulate = int(options.pop("accumulate", 0))
    symbol = f"linear_{name}{suffix}_n{n}_k{k}_accumulate{accumulate}"
    team.run([(symbol, 0, [x, weight, y])], tokens=len(x), **options)
    return y


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 13])
def test_matches_the_formula_and_the_reference(team, name, n, k, tokens):
    rng = np.random.default_rng([n, k, tokens])
    here = team(all_bindings())
    weight, values = FORMATS[name](rng, n, k)
    x, seen = activations(here, name, aligned(rng.standard_normal((tokens, k)).astype(np.float32)))
    wanted = seen @ values.astype(np.float64).T
    size = np.abs(seen) @ np.abs(values.astype(np.float64)).T + 1e-30
    y = run(here, name, n, k, x, weight)
    assert np.max(np.abs(y - wanted) / size) < 4e-7
    assert np.max(np.abs(run(here, name, n, k, x, weight, suffix="_ref") - wanted) / size) < 1e-7
    before = aligned(rng.standard_normal((tokens, n)).astype(np.float32))
    added = run(here, name, n, k, x, weight, y=aligned(before), accumulate=1)
    assert np.array_equal(added, before + y)


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_does_not_depend_on_its_company(team, name):
    n, k = 256, 576
    rng = np.random.default_rng(7)
    one, two = team(all_bindings()), team(all_bindings(), threads=2)
    weight, _ = FORMATS[name](rng, n, k)
    plain = aligned(rng.standard_normal((23, k)).astype(np.float32))
    x, _ = activations(one, name, plain)
    whole = run(one, name, n, k, x, weight)
    for first, last in [(0, 1), (5, 6), (3, 9), (1, 23), (20, 23)]:
        assert np.array_equal(run(one, name, n, k, x[first:last], weight), whole[first:last])
    for parts in (1, 2, 3, 7, 100):
        assert np.array_equal(run(two, name, n, k, x, weight, parts=parts), whole)
        assert np.array_equal(run(two, name, n, k, x[:1], weight, parts=parts), whole[:1])


@pytest.mark.parametrize("name", FORMATS)
def test_writes_only_its_own_columns(team, name):
    rng = np.random.default_rng(3)
    here = team(all_bindings())
    weight, _ = FORMATS[name](rng, 17, 32)
    x, _ = activations(here, name, aligned(rng.standard_normal((5, 32)).astype(np.float32)))
    wide = aligned(np.full((5, 64), 9, np.float32))
    run(here, name, 17, 32, x, weight, y=wide[:, 16:33])
    assert (wide[:, :16] == 9).all()
    assert (wide[:, 33:] == 9).all()
    assert np.array_equal(wide[:, 16:33], run(here, name, 17, 32, x, weight))


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-20, 1.0, 1e20])
def test_quantize_keeps_sixteen_bits(team, scale):
    rng = np.random.default_rng(11)
    here = team(all_bindings())
    x = aligned((rng.standard_normal((9, 576)) * scale).astype(np.float32))
    x[0, :32] = 0
    x[1, 0] = np.float32(1000 * scale)
    groups, values = activations(here, "q4_1", x)
    top = np.abs(x.reshape(9, -1, 32)).max(2).repeat(32, 1)
    assert (np.abs(values - x) <= top * (0.51 / 32384) + 1.1e-30).all()
    raw = groups.reshape(9, -1, 72)
    digits = raw[..., :64].view(np.int8)
    assert digits.min() >= -127
    sums = np.ascontiguousarray(raw[..., 68:]).view(np.int32)[..., 0]
    assert np.array_equal(sums, (254 * digits[..., :32].astype(int) + digits[..., 32:]).sum(2))
    other = aligned(np.zeros_like(groups))
    here.run([("quantize_i16g32_ref_columns576", 0, [x, other])], tokens=9)
    assert np.array_equal(groups, other)


def test_extremes_of_both_operands_do_not_overflow(team):
    here = team(all_bindings())
    for name, fill in (("q4_1", 0xFF), ("q8_0", 0x80), ("q8_0", 0x7F)):
        for sign in (1, -1):
            weight, _ = FORMATS[name](np.random.default_rng(0), 64, 64)
            blocks = weight.reshape(4 * 2, -1)
            head = 64 if name == "q4_1" else 32
            blocks[:, :head].view(np.float16)[...] = 0
            blocks[:, :32].view(np.float16)[...] = 1
            blocks[:, head:] = fill
            x, seen = activations(here, name, aligned(np.full((5, 64), sign * 3, np.float32)))
            value = {0xFF: 15, 0x80: -128, 0x7F: 127}[fill]
            y = run(here, name, 64, 64, x, weight)
            assert np.allclose(y, seen.sum(1)[:, None] * value, rtol=1e-6)
