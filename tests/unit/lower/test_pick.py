"""Which kernel a call gets: none unasked that is slow or less exact, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pih_runtime.errors import ResolutionError
from pih_runtime.ops import KERNEL_OPS
from pih_steps.lower import NoKernelError, lower
from tests.unit.lower.made import (
    FLOAT,
    I16,
    LIMITS,
    LLAMA,
    PLAIN,
    QUANTIZED,
    checkpoint,
    kernel,
    llama_tensors,
    lowered,
    report,
)


def test_a_missing_kernel_is_named():
    with pytest.raises(ResolutionError, match=r"kernels/test .*no silu_mul with columns 96") as caught:
        lowered(pack=report(*(k for k in PLAIN if k["op"] != "silu_mul"), *FLOAT))
    assert caught.value.exit_code == 4


def test_a_missing_quantize_is_named():
    with pytest.raises(ResolutionError, match="no quantize to i16"):
        lowered(checkpoint(llama_tensors("q4_1")), report(*PLAIN, *QUANTIZED[:2], activations=[I16]))


def test_a_shape_that_the_kernel_cannot_run_is_named():
    narrow = kernel("attention", multiple={"head_dim": 32})
    with pytest.raises(ResolutionError, match="no attention with"):
        lowered(pack=report(*(k for k in PLAIN if k["op"] != "attention"), narrow, *FLOAT))


def test_a_constant_that_a_call_does_not_have_is_named():
    odd = kernel("gather", constants=["n"])
    with pytest.raises(ResolutionError, match="kernel gather asks for the constant 'n'"):
        lowered(pack=report(*(k for k in PLAIN if k["op"] != "gather"), odd, *FLOAT))


def others(op):
    return [item for item in PLAIN if item["op"] != op]


def choosy(op="attention", **more):
    """The plain report, with a kernel of one op that cannot run the tests' model, and its scalar reference."""
    return report(*others(op), kernel(op, multiple={"head_dim": 7}, reference=f"{op}_ref", **more), *FLOAT)


def test_a_scalar_reference_is_not_taken_unasked_and_the_message_says_how_to_ask():
    for fallbacks in ((), ("linear",)):
        with pytest.raises(NoKernelError) as caught:
            lowered(pack=choosy(), fallbacks=fallbacks)
        assert caught.value.causes == ("attention is out: it needs head_dim to be a multiple of 7, and head_dim is 16",)
        assert 'kernels.fallback = "allow", fallback_ops = ["attention"]' in caught.value.fix


def test_a_scalar_reference_that_is_allowed_is_bound_and_named():
    found = lowered(pack=choosy(), fallbacks=("attention",))
    slow = [binding for binding in found.bindings if binding.path == "reference"]
    assert [(binding.op, binding.template, binding.symbol) for binding in slow] == [
        ("attention", "attention_ref", "attention_ref")
    ]
    assert found.fallbacks == (
        "attention: scalar reference attention_ref (it needs head_dim to be a multiple of 7, and head_dim is 16)",
    )
    assert {call.symbol for call in found.plan.calls if call.op == "attention"} == {"attention_ref"}


def test_leave_to_be_slow_is_not_used_where_a_fast_kernel_serves():
    found = lowered(fallbacks=KERNEL_OPS)
    assert found.fallbacks == ()
    assert {binding.path for binding in found.bindings} == {"fast"}
    assert found == lowered()


def test_a_fast_form_of_a_weight_comes_before_a_slow_one():
    slow = kernel("linear", "f32", "tile16", template="", reference="linear_tile_ref")
    found = lowered(pack=report(*PLAIN, FLOAT[0], slow, FLOAT[1]), fallbacks=("linear",))
    assert {binding.layout for binding in found.bindings if binding.op == "linear"} == {"rows"}


@pytest.mark.parametrize("gap", [{"template": ""}, {"isa": ["x86-64-v4-bf16-vnni"]}])
def test_a_gap_in_the_pack_falls_back_where_it_may(gap):
    pack = report(*others("gather"), kernel("gather", reference="gather_ref", **gap), *FLOAT)
    with pytest.raises(NoKernelError):
        lowered(pack=pack)
    assert lowered(pack=pack, fallbacks=("gather",)).fallbacks[0].startswith("gather: scalar reference gather_ref (")


def test_a_reference_has_limits_of_its_own():
    pack = choosy(reference_multiple={"head_dim": 5})
    with pytest.raises(NoKernelError) as caught:
        lowered(pack=pack, fallbacks=("attention",))
    assert "fallback" not in caught.value.fix


def test_sums_less_exact_than_the_model_needs_are_refused():
    rough = report(*others("silu_mul"), kernel("silu_mul", constants=["columns"], mode="bf16"), *FLOAT)
    with pytest.raises(NoKernelError) as caught:
        lowered(pack=rough)
    assert caught.value.causes == ("silu_mul is out: its sums pass through bf16, and llama needs f32",)


@pytest.mark.parametrize(("needed", "fits"), [("bf16", True), ("f32", True), ("f64", False), ("exact", False)])
def test_a_model_says_how_exact_an_op_must_be(needed, fits):
    def graph(config, tensors, limits):
        return replace(LLAMA(config, tensors, limits), modes={"attention": needed})

    def run():
        return lower(checkpoint(), graph, report(), LIMITS)

    if fits:
        assert {binding.mode for binding in run().bindings} == {"f32"}
    else:
        with pytest.raises(NoKernelError, match=f"llama needs {needed}"):
            run()


def test_int4_without_a_kernel():
    with pytest.raises(NoKernelError) as caught:
        lowered(checkpoint(llama_tensors("q4_1")))
    assert str(caught.value).startswith(
        "kernels/test (x86-64-v3): the kernel pack has no embed + linear for q4_1 weights of the shape"
    )
    assert caught.value.fix == "choose another kernel pack or ISA, or a checkpoint in one of f32"
