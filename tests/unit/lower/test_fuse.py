"""Passes make fewer calls where it is safe, and leave alone what it is not."""

from __future__ import annotations

import pytest

from pih_runtime.errors import BuildError
from pih_steps.lower.fuse import accumulate, merge_linears, merge_ropes
from tests.unit.lower.made import FLOAT, PLAIN, QUANTIZED, builder, calls, kernel, report


def start(g):
    return g.embed("x", "table", 48, 64)


def test_linears_of_one_input_become_one():
    g = builder(table=(48, 64), **{"l.a_proj.w": (32, 64), "l.b_proj.w": (16, 64)})
    x = start(g)
    a = g.linear("0.a", x, "l.a_proj.w", 32)
    b = g.linear("0.b", x, "l.b_proj.w", 16)
    graph = merge_linears(g.finish(g.gather("r", g.silu_mul("y", a, b))), report())
    assert calls(graph)[1:3] == [
        "linear x[0:64] l.a_proj+b_proj.w 0.a+b[0:48]",
        "silu_mul 0.a+b[0:32] 0.a+b[32:48] y[0:32]",
    ]
    assert graph.parameters["l.a_proj+b_proj.w"].sources == ("l.a_proj.w", "l.b_proj.w")
    assert graph.parameters["l.a_proj+b_proj.w"].shape == (48, 64)
    assert "0.a" not in graph.values


def test_rows_that_fill_no_tile_are_not_stacked():
    g = builder(table=(48, 64), a=(8, 64), b=(16, 64))
    x = start(g)
    graph = g.finish(g.silu_mul("y", g.linear("a", x, "a", 8), g.linear("b", x, "b", 16)))
    tiled = report(*PLAIN, kernel("linear", "f32", "tile16"))
    assert calls(merge_linears(graph, tiled)) == calls(graph)
    assert len(merge_linears(graph, report(*PLAIN, *FLOAT)).nodes) == len(graph.nodes) - 1


def test_linears_of_another_input_or_of_a_changed_one_are_not_stacked():
    g = builder(table=(48, 64), a=(64, 64), b=(64, 64), c=(64, 64), norm=(64,))
    x = start(g)
    a = g.linear("a", x, "a", 64)
    b = g.linear("b", a, "b", 64)
    g.rms_norm_heads(x, "norm", 64, 1e-5)
    graph = g.finish(g.silu_mul("y", g.linear("c", x, "c", 64), b))
    assert calls(merge_linears(graph, report())) == calls(graph)


def test_a_weight_with_another_use_is_not_stacked():
    g = builder(table=(64, 64), a=(64, 64))
    x = start_of_square(g)
    graph = g.finish(g.silu_mul("y", g.linear("a", x, "a", 64), g.linear("t", x, "table", 64)))
    assert calls(merge_linears(graph, report())) == calls(graph)


def start_of_square(g):
    return g.embed("x", "table", 64, 64)


def test_an_addition_becomes_part_of_its_linear():
    g = builder(table=(48, 64), a=(64, 64), norm=(64,))
    x = start(g)
    h = g.rms_norm("h", x, "norm", 1e-5)
    y = g.add("y", x, g.linear("d", h, "a", 64))
    graph = accumulate(g.finish(g.gather("r", y)))
    assert calls(graph)[2:4] == ["linear h[0:64] a x[0:64]", "gather x[0:64] r[0:64]"]
    assert graph.nodes[2].attrs == {"accumulate": True}
    assert set(graph.values) == {"x", "h", "r"}


def addition(*, term_used_twice=False, x_used_after=False, x_used_between=False, no_linear=False):
    g = builder(table=(48, 64), a=(64, 64), norm=(64,))
    x = start(g)
    h = g.rms_norm("h", x, "norm", 1e-5)
    d = h if no_linear else g.linear("d", h, "a", 64)
    extra = x
    if x_used_between:
        extra = g.rms_norm("e", x, "norm", 1e-5)
    y = g.add("y", x, d)
    if term_used_twice:
        extra = d
    last = g.silu_mul("z", y, extra) if term_used_twice or x_used_after or x_used_between else y
    return g.finish(last)


def test_additions_are_fused_where_only_they_need_the_term():
    assert "add" not in [node.op for node in accumulate(addition()).nodes]


@pytest.mark.parametrize("case", ["term_used_twice", "x_used_after", "x_used_between"])
def test_an_addition_that_would_change_other_calls_is_an_error(case):
    with pytest.raises(BuildError, match="no kernel adds x and d"):
        accumulate(addition(**{case: True}))


def test_an_addition_without_a_linear_is_an_error():
    g = builder(table=(48, 64), a=(64, 64), norm=(64,))
    x = start(g)
    g.linear("unused", x, "a", 64)
    graph = g.finish(g.add("y", x, g.rms_norm("h", x, "norm", 1e-5)))
    with pytest.raises(BuildError, match="no kernel adds x and h"):
        accumulate(graph)


def rotated(*, apart=False, between=False, other_pairs=False):
    g = builder(table=(48, 64), a=(32, 64), b=(16, 64), c=(16, 64))
    x = start(g)
    table = g.rope_table("rope", tuple(1.0 for _ in range(8)))
    a, b, c = (g.linear(name, x, name, width) for name, width in (("a", 32), ("b", 16), ("c", 16)))
    second = c if apart else b
    g.rope(second, table, 16, "half")
    if between:
        g.silu_mul("z", a, a)
    g.rope(a, table, 16, "adjacent" if other_pairs else "half")
    graph = merge_linears(g.finish(g.silu_mul("y", b, c)), report(*PLAIN, *FLOAT, *QUANTIZED[:0]))
    return [line for line in calls(merge_ropes(graph)) if line.startswith("rope ")]


def test_rotations_side_by_side_become_one():
    assert rotated() == ["rope a+b+c[0:48] rope[0:16] a+b+c[0:48]"]


@pytest.mark.parametrize("case", ["apart", "between", "other_pairs"])
def test_other_rotations_stay(case):
    assert len(rotated(**{case: True})) == 2
