"""A whole small model, lowered: deterministic, bound to kernels by name, refused where things do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pih.catalog import report_rules
from pih_runtime.errors import BuildError, PihError, ResolutionError
from pih_runtime.plan import Limits, from_json, to_json
from pih_steps.lower import Builder, Tensor, formats, lower, parse_report, pick, plan_sha256, read_report
from pih_steps.lower.plugin import load_graph
from tests.support.program import ROOT
from tests.unit.lower.made import (
    FLOAT,
    ISA,
    LIMITS,
    LLAMA,
    PLAIN,
    checkpoint,
    kernel,
    llama_tensors,
    lowered,
    quantized_report,
    report,
    table,
)


def ops(plan):
    return [call.op for call in plan.calls]


def test_a_layer_is_nine_calls():
    plan = lowered().plan
    layer = [
        "rms_norm",
        "linear",
        "rope",
        "kv_write",
        "attention",
        "linear",
        "rms_norm",
        "linear",
        "silu_mul",
        "linear",
    ]
    assert ops(plan) == ["rope_table", "embed", *layer, *layer, "gather", "rms_norm", "linear", "sample"]


def test_the_plan_survives_its_json_and_is_the_same_each_time():
    plan = lowered().plan
    assert from_json(to_json(plan)) == plan
    assert plan_sha256(lowered().plan) == plan_sha256(plan)
    shuffled = dict(reversed(llama_tensors().items()))
    assert plan_sha256(lowered(checkpoint(shuffled)).plan) == plan_sha256(plan)


def test_symbols_say_template_and_constants():
    symbols = [binding.symbol for binding in lowered().bindings]
    assert symbols == sorted(symbols)
    assert "linear_f32_n128_k64_accumulate0" in symbols
    assert "linear_f32_n64_k96_accumulate1" in symbols
    assert "attention_heads4_kv_heads2_head_dim16_page_size16_kv1_scale_bits1048576000" in symbols
    assert "rms_norm_f32_columns64_groups1_eps_bits925353388" in symbols
    assert {call.symbol for call in lowered().plan.calls} == set(symbols)


def test_what_a_report_may_name_is_what_the_calls_have(monkeypatch):
    """Of every op that the two models use; `add` alone is in no plan."""
    found = {}

    def record(node, pack, real=pick.figures):
        figures = real(node, pack)
        found.setdefault(node.op, set()).add(frozenset(figures))
        return figures

    monkeypatch.setattr(pick, "figures", record)
    lowered()
    lowered(checkpoint(llama_tensors("q4_1")), quantized_report())
    assert found == {op: {names} for op, names in report_rules.FIGURES.items() if op != "add"}
    assert tuple(formats.BLOCKS) == report_rules.FORMATS


def test_a_private_activation_is_made_once_for_its_consumers():
    plan = lowered(checkpoint(llama_tensors("q4_1")), quantized_report()).plan
    assert ops(plan)[2:5] == ["rms_norm", "quantize", "linear"]
    assert ops(plan).count("quantize") == 4 * 2 + 1
    form = next(buffer for buffer in plan.buffers if buffer.name.endswith(".i16"))
    assert (form.dtype, form.columns, form.row_bytes) == ("u8", 64 // 32 * 72, 192)
    made = next(call for call in plan.calls if call.op == "quantize")
    assert made.attrs == {"format": "i16"}


@pytest.mark.parametrize("changed", [False, True])
def test_a_value_is_quantized_again_only_after_it_changed(changed):
    tensors = {"norm": Tensor("f32", (64,))} | {name: Tensor("q4_1", (64, 64)) for name in ("table", "a", "b")}

    def graph(*_):
        g = Builder("test", tensors)
        x = g.embed("x", "table", 64, 64)
        y = g.linear("y", x, "a", 64)
        g.rms_norm_heads(x if changed else y, "norm", 64, 1e-5)
        z = g.linear("z", x, "table", 64)
        return g.finish(g.silu_mul("out", g.silu_mul("w", y, z), g.linear("v", z, "b", 64)))

    assert (
        ops(lower(replace(checkpoint(), config={}), graph, quantized_report(), LIMITS).plan).count("quantize")
        == 2 + changed
    )


def test_tied_embeddings_take_a_layout_that_both_ops_read():
    both = (kernel("linear", "f32", "tile16"), *FLOAT)
    weights = {weight.name: weight for weight in lowered(pack=report(*PLAIN, *both)).plan.weights}
    assert weights["model.embed_tokens.weight"].layout == "rows"
    assert weights["model.layers.0.self_attn.o_proj.weight"].layout == "tile16"


def test_rows_that_fill_no_tile_take_a_layout_without_tiles():
    tiled_first = report(*PLAIN, kernel("linear", "f32", "tile16"), *FLOAT)
    tensors = {name: Tensor("f32", (rows, 64)) for name, rows in (("table", 48), ("a", 24), ("b", 32))}

    def graph(*_):
        g = Builder("test", tensors)
        x = g.embed("x", "table", 48, 64)
        return g.finish(g.silu_mul("y", g.linear("a", x, "a", 24), g.linear("b", x, "b", 32)))

    weights = {
        weight.name: weight.layout
        for weight in lower(replace(checkpoint(), config={}), graph, tiled_first, LIMITS).plan.weights
    }
    assert weights == {"table": "rows", "a": "rows", "b": "tile16"}


def test_vectors_are_widened_where_the_pack_wants_float32():
    weights = {weight.name: weight for weight in lowered(checkpoint(llama_tensors(norm="bf16"))).plan.weights}
    assert weights["model.norm.weight"].format == "f32"
    assert weights["model.norm.weight"].nbytes == 256


def test_matrices_are_never_widened():
    with pytest.raises(ResolutionError, match=r"no embed \+ linear for bf16 weights .* model.embed_tokens.weight"):
        lowered(checkpoint(llama_tensors("bf16")))


def test_the_cache_holds_every_sequence_at_full_length():
    cache = lowered(kv_dtype="f32", limits=Limits(8, 2, 33)).plan.caches[0]
    assert (cache.pages, cache.page_size, cache.dtype) == (2 * 3, 16, "f32")
    assert cache.nbytes == 2 * 2 * 6 * 2 * 16 * 16 * 4


@pytest.mark.parametrize("limits", [Limits(0, 1, 8), Limits(1, 2, 8), Limits(8, 2, 0)])
def test_limits_that_make_no_step_are_refused(limits):
    with pytest.raises(ResolutionError, match="limits"):
        lowered(limits=limits)


def test_an_unknown_cache_dtype_is_refused():
    with pytest.raises(ResolutionError, match="kv_dtype 'fp8'"):
        lowered(kv_dtype="fp8")


def without(name):
    return {key: value for key, value in llama_tensors().items() if key != name}


BIASED = {**llama_tensors(), "model.layers.0.self_attn.q_proj.bias": Tensor("f32", (64,))}
# what is said → tensors (None: as they should be), and what is changed in the config
CONTRADICTIONS = {
    r"llama: tensor model.norm.weight is missing, the config asks for \[64\]": (without("model.norm.weight"), {}),
    r"tensor model.embed_tokens.weight has the shape \[48, 64\], .* \[50, 64\]": (None, {"vocab_size": 50}),
    "no place for tensor model.layers.1.input_layernorm.weight and 8 more": (None, {"num_hidden_layers": 1}),
    "tensor model.layers.2.input_layernorm.weight is missing": (None, {"num_hidden_layers": 3}),
    "tensor lm_head.weight is missing": (None, {"tie_word_embeddings": False}),
    "no place for tensor model.layers.0.self_attn.q_proj.bias": (BIASED, {}),
    "is 3, expected a divisor of num_attention_heads, 4": (None, {"num_key_value_heads": 3}),
    "hidden_size is '64', expected a whole number": (None, {"hidden_size": "64"}),
    "hidden_size is True, expected a whole number": (None, {"hidden_size": True}),
    "num_hidden_layers is 1000000000, expected a whole number from 1 to 16777216": (None, {"num_hidden_layers": 10**9}),
    "num_hidden_layers is None": (None, {"num_hidden_layers": None}),
    "rms_norm_eps is nan": (None, {"rms_norm_eps": float("nan")}),
    "head_dim is 1048576, expected an even number up to 4096": (None, {"head_dim": 1 << 20}),
    "rope_scaling is {'type': 'yarn'}, expected null": (None, {"rope_scaling": {"type": "yarn"}}),
    "attention_bias is True, expected False": (None, {"attention_bias": True}),
    "hidden_act is 'gelu', expected 'silu'": (None, {"hidden_act": "gelu"}),
    "rope_theta is None": (None, {"rope_theta": None}),
    "model_type is 'granite', expected 'llama'": (None, {"model_type": "granite"}),
    "config key embedding_multiplier is 12.0, of which": (None, {"embedding_multiplier": 12.0}),
    "config key no_rope_layers is .1, 1, 0., of which": (None, {"no_rope_layers": [1, 1, 0]}),
    "config key sliding_window is 4096, of which": (None, {"sliding_window": 4096}),
    "config key quantization_config is": (None, {"quantization_config": {"quant_method": "fp8"}}),
    "config key rope_interleaved is True": (None, {"rope_interleaved": True}),
    "config key rope_scaling is": (None, {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "yarn"}}),
    "use_sliding_window is True": (None, {"use_sliding_window": True, "sliding_window": 64}),
    "layer_types is": (None, {"layer_types": ["full_attention", "sliding_attention"]}),
    "layer_types is 3": (None, {"layer_types": 3}),
    "partial_rotary_factor is 0.5, expected 1.0": (None, {"partial_rotary_factor": 0.5}),
    "partial_rotary_factor is 0.25, expected 1.0": (None, {"rope_parameters": {"partial_rotary_factor": 0.25}}),
    "rope_scaling is .*attention_factor.*, expected null": (
        None,
        {"rope_parameters": {"rope_type": "default", "attention_factor": 1.2}},
    ),
    "a context of 32 is more than the model's 16 positions": (None, {"max_position_embeddings": 16}),
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_a_config_that_contradicts_its_tensors_is_refused(message):
    tensors, config = CONTRADICTIONS[message]
    with pytest.raises(PihError, match=message) as caught:
        lowered(checkpoint(tensors, **config))
    assert caught.value.fix


def test_rope_parameters_of_newer_configs_are_read():
    newer = checkpoint(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    assert plan_sha256(lowered(newer).plan) == plan_sha256(lowered().plan)


def test_what_says_nothing_of_the_numbers_is_let_be():
    """As in the configs of SmolLM2, of Qwen2.5 and of files that tools have written."""
    harmless = {
        "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "initializer_range": 0.04, "use_cache": True,
        "is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "pretraining_tp": 1,
        "transformers.js_config": {"dtype": "fp32"}, "attention_dropout": 0.1, "eos_token_id": [1, 2],
        "use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 2,
        "layer_types": ["full_attention"] * 2, "partial_rotary_factor": 1.0, "num_experts": 0,
    }  # fmt: skip
    assert plan_sha256(lowered(checkpoint(**harmless)).plan) == plan_sha256(lowered().plan)


def test_a_tied_head_that_is_stored_all_the_same_is_left_out():
    tensors = {**llama_tensors(), "lm_head.weight": Tensor("f32", (48, 64))}
    assert plan_sha256(lowered(checkpoint(tensors)).plan) == plan_sha256(lowered().plan)


def test_the_shipped_packs_run_the_shipped_models():
    qwen3 = load_graph(ROOT / "plugins/model/qwen3")
    norms = {f"model.layers.{layer}.self_attn.{x}_norm.weight": Tensor("f32", (16,)) for layer in (0, 1) for x in "qk"}
    for plugin in ("kernels/cpu", "backend/torch"):
        for isa in ("x86-64-v3", "x86-64-v4-bf16-vnni"):
            pack = read_report(ROOT / "plugins" / plugin, isa)
            assert lower(checkpoint(llama_tensors("bf16")), LLAMA, pack, LIMITS).bindings
            plan = lower(checkpoint({**llama_tensors("bf16"), **norms}), qwen3, pack, LIMITS).plan
            assert ops(plan)[3:7] == ["linear", "rms_norm", "rms_norm", "rope"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("layout"), "not a capability report: KeyError"),
        (lambda data: data["kernel"][0].pop("op"), "not a capability report"),
        (lambda data: data["kernel"][0].update(op="conv"), "unknown op 'conv'"),
        (lambda data: data["kernel"][0].update(layout="spiral"), "does not describe"),
        (lambda data: data["kernel"][0].update(activation="i4"), "does not describe"),
        (lambda data: data["kernel"].clear(), "no kernel for x86-64-v3"),
    ],
)
def test_a_report_that_does_not_hold_together_is_refused(change, message):
    data = table(*PLAIN)
    change(data)
    with pytest.raises(BuildError, match=message):
        parse_report(data, ISA, "kernels/test")


def test_a_plugin_without_a_report_is_refused(tmp_path):
    with pytest.raises(BuildError, match="cannot read"):
        read_report(tmp_path, ISA)
    (tmp_path / "plugin.toml").write_text('id = "kernels/none"\n')
    with pytest.raises(BuildError, match="the plugin has no 'report'"):
        read_report(tmp_path, ISA)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "no build entry: KeyError"),
        ('[build]\nentry = "pih_model_x"', "no build entry: ValueError"),
        ('[build]\nentry = "pih_model_x:graph"', "package pih_model_x is not there"),
        ('[build]\nentry = "pih_model_y:graph"', "pih_model_y has no function graph"),
    ],
)
def test_a_model_plugin_without_a_graph_is_refused(tmp_path, manifest, message):
    (tmp_path / "plugin.toml").write_text(manifest)
    (tmp_path / "pih_model_y").mkdir()
    (tmp_path / "pih_model_y/__init__.py").write_text("")
    with pytest.raises(BuildError, match=message):
        load_graph(tmp_path)
