"""Calls that follow each other become one where a kernel does them together, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pih_runtime.plan import Call, Operand
from pih_steps.lower import fused, read_report
from pih_steps.lower.fused import Bound
from tests.support.program import ROOT

REPORT = read_report(ROOT / "plugins/kernels/cuda", "sm_89")
KERNELS = {kernel.template: kernel for kernel in REPORT.fused}
EPS = 897988541


def view(buffer, columns, column=0):
    return Operand(buffer=buffer, column=column, columns=columns)


def bound(op, *operands, mode="f32", **figures):
    return Bound(Call(op, op, operands, {}), figures, mode)


NORM_WEIGHT, CACHE = Operand(weight="norm"), Operand(cache="kv", layer=3)
X, H, B, G, R, Y = (view(name, 64) for name in ("x", "h", "b", "g", "r", "y"))
BOTH, Q, K, V = view("qkv", 96), view("qkv", 64), view("qkv", 32, 64), view("qkv", 32, 96)
TABLE, GATE, UP = view("table", 32), view("gu", 64), view("gu", 64, 64)
Q_NORM, K_NORM = Operand(weight="q_norm"), Operand(weight="k_norm")

NORM = bound("rms_norm", X, NORM_WEIGHT, H, columns=64, groups=1, eps_bits=EPS)
QUANTIZE = bound("quantize", H, B, columns=64)
GATHER = bound("gather", X, G, columns=64)
NORM_OF_GATHERED = bound("rms_norm", G, NORM_WEIGHT, H, columns=64, groups=1, eps_bits=EPS)
SILU = bound("silu_mul", GATE, UP, Y, columns=64)
QUANTIZE_Y = bound("quantize", Y, B, columns=64)
ATTENTION = bound(
    "attention", Q, CACHE, Y,
    columns=64, heads=2, kv_heads=1, head_dim=32, scale_bits=5, positions=512, seqs=4, page_size=16, kv=1,
)  # fmt: skip
Q_NORMED = bound("rms_norm", Q, Q_NORM, Q, columns=64, groups=2, head_dim=32, eps_bits=EPS)
K_NORMED = bound("rms_norm", K, K_NORM, K, columns=32, groups=1, head_dim=32, eps_bits=EPS)
ROPE = bound("rope", BOTH, TABLE, BOTH, columns=96, head_dim=32, pairs=0)
WRITE = bound("kv_write", K, V, CACHE, columns=32, kv_heads=1, head_dim=32, page_size=16, kv=1)

CASES = {
    "rms_norm_bf16": ([NORM, QUANTIZE], [X, NORM_WEIGHT, B], H),
    "gather_rms_norm_bf16": ([GATHER, NORM_OF_GATHERED, QUANTIZE], [X, NORM_WEIGHT, B], G),
    "silu_mul_bf16": ([SILU, QUANTIZE_Y], [GATE, UP, B], Y),
    "attention_bf16": ([ATTENTION, QUANTIZE_Y], [Q, CACHE, B], Y),
    "norm_rope_kv_write": ([Q_NORMED, K_NORMED, ROPE, WRITE], [Q_NORM, K_NORM, BOTH, TABLE, K, V, CACHE], K),
    "rope_kv_write": ([ROPE, WRITE], [BOTH, TABLE, K, V, CACHE], K),
}


def matched(calls, template):
    return fused.match(calls, 0, [KERNELS[template]])


def test_every_fused_kernel_of_the_pack_is_here():
    assert set(CASES) == set(KERNELS)


@pytest.mark.parametrize("template", CASES)
def test_its_calls_become_one(template):
    calls, operands, _ = CASES[template]
    found = fused.match(calls, 0, REPORT.fused)
    assert found.kernel is KERNELS[template]
    assert found.count == len(calls)
    assert found.call.op == "+".join(item.call.op for item in calls)
    assert list(found.call.operands) == operands
    assert found.call.symbol == "_".join([template, *(f"{name}{value}" for name, value in found.constants.items())])


def test_constants_come_from_the_call_that_a_kernel_names():
    assert matched(CASES["norm_rope_kv_write"][0], "norm_rope_kv_write").constants == {
        "columns": 96, "kv_heads": 1, "head_dim": 32, "pairs": 0, "eps_bits": EPS,
    }  # fmt: skip
    assert matched(CASES["rope_kv_write"][0], "rope_kv_write").constants["columns"] == 96


@pytest.mark.parametrize("template", CASES)
def test_a_dropped_value_that_is_read_later_prevents_it(template):
    calls, _, dropped = CASES[template]
    columns = replace(dropped, column=dropped.column + dropped.columns - 1, columns=1)
    assert matched([*calls, bound("gather", columns, R)], template) is None
    beside = replace(dropped, column=dropped.column + dropped.columns)
    assert matched([*calls, bound("gather", beside, R)], template) is not None


@pytest.mark.parametrize("template", CASES)
def test_another_order_or_a_call_between_prevents_it(template):
    calls = CASES[template][0]
    assert matched(calls[::-1], template) is None
    assert matched([calls[0], bound("gather", X, R, columns=64), *calls[1:]], template) is None
    assert matched(calls[:-1], template) is None


@pytest.mark.parametrize("template", [name for name in CASES if KERNELS[name].same])
def test_views_that_must_be_one_and_are_not_prevent_it(template):
    calls = list(CASES[template][0])
    places = [(i, j) for i, item in enumerate(calls) for j in range(len(item.call.operands))]
    for pair in KERNELS[template].same:
        at, index = places[max(pair)]
        operands = list(calls[at].call.operands)
        operands[index] = replace(operands[index], buffer="another")
        other = replace(calls[at], call=replace(calls[at].call, operands=tuple(operands)))
        assert matched([*calls[:at], other, *calls[at + 1 :]], template) is None


@pytest.mark.parametrize("template", CASES)
def test_a_less_exact_mode_than_a_call_needs_prevents_it(template):
    calls = list(CASES[template][0])
    for at, item in enumerate(calls):
        exact = replace(item, mode="f64")
        assert matched([*calls[:at], exact, *calls[at + 1 :]], template) is None
    assert matched([replace(item, mode="bf16") for item in calls], template) is not None


def changed(item, **figures):
    return replace(item, figures={**item.figures, **figures})


def test_figures_in_which_calls_disagree_prevent_it():
    norms = [Q_NORMED, changed(K_NORMED, eps_bits=EPS + 1), ROPE, WRITE]
    assert matched(norms, "norm_rope_kv_write") is None
    assert matched([NORM, changed(QUANTIZE, columns=32)], "rms_norm_bf16") is None
    assert matched([ROPE, changed(WRITE, head_dim=64)], "rope_kv_write") is None


def test_a_figure_that_no_call_has_prevents_it():
    without = replace(ROPE, figures={"columns": 96, "head_dim": 32})
    assert matched([without, WRITE], "rope_kv_write") is None


@pytest.mark.parametrize(
    ("template", "at", "figures"),
    [
        ("rms_norm_bf16", 0, {"groups": 2}),
        ("rope_kv_write", 1, {"kv": 0}),
        ("rope_kv_write", 1, {"page_size": 8}),
        ("attention_bf16", 0, {"head_dim": 48}),
        ("attention_bf16", 0, {"kv": 0}),
    ],
)
def test_a_figure_that_the_kernel_is_not_made_for_prevents_it(template, at, figures):
    calls = list(CASES[template][0])
    calls[at] = changed(calls[at], **figures)
    assert matched(calls, template) is None


def test_kernels_are_tried_in_the_packs_order():
    both = [KERNELS["rope_kv_write"], KERNELS["norm_rope_kv_write"]]
    calls = CASES["norm_rope_kv_write"][0]
    assert fused.match(calls, 0, both).kernel.template == "norm_rope_kv_write"
    assert fused.match(calls, 2, both).kernel.template == "rope_kv_write"
    assert fused.match(calls, 1, both) is None
