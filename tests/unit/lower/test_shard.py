"""Tensor parallelism: what is divided, what joins it again, and refusals in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pih_runtime.errors import BuildError, ResolutionError, WorkerError
from pih_runtime.ops import COLLECTIVES
from pih_runtime.plan import Weight, check, from_json, to_json
from pih_steps.lower import Tensor, lower
from pih_steps.lower.checkpoint import Checkpoint
from pih_steps.lower.formats import matrix, row_bytes
from pih_steps.lower.pack import check_sources, packed_chunks
from pih_steps.lower.shard import shard
from pih_steps.lower.shares import share
from tests.unit.lower.made import FLOAT, LIMITS, LLAMA, PLAIN, builder, calls, checkpoint, kernel, llama_tensors, report

PACK = report(*PLAIN, *FLOAT, kernel("add", constants=["columns"]))


def graph(source):
    return LLAMA(source.config, source.tensors, LIMITS)


def lowered(ranks, source=None):
    return lower(source or checkpoint(), LLAMA, PACK, LIMITS, ranks=ranks)


def own_head():
    tensors = {**llama_tensors(), "lm_head.weight": Tensor("f32", (48, 64))}
    return checkpoint(tensors, tie_word_embeddings=False)


def test_a_layer_is_divided_at_its_heads_and_its_feed_forward():
    layer = [call for call in calls(shard(graph(checkpoint()), 2)) if "0." in call and "rms" not in call]
    of = "model.layers.0"
    assert layer == [
        f"linear 0.attn_in[0:64] {of}.self_attn.q_proj.weight 0.q[0:32]",
        f"linear 0.attn_in[0:64] {of}.self_attn.k_proj.weight 0.k[0:16]",
        f"linear 0.attn_in[0:64] {of}.self_attn.v_proj.weight 0.v[0:16]",
        "rope 0.k[0:16] rope[0:16] 0.k[0:16]",
        "kv_write 0.k[0:16] 0.v[0:16] kv/0",
        "rope 0.q[0:32] rope[0:16] 0.q[0:32]",
        "attention 0.q[0:32] kv/0 0.attended[0:32]",
        f"linear 0.attended[0:32] {of}.self_attn.o_proj.weight 0.o[0:64]",
        "all_reduce 0.o[0:64] 0.o[0:64]",
        "add 0.o[0:64] x[0:64]",
        f"linear 0.mlp_in[0:64] {of}.mlp.gate_proj.weight 0.gate[0:48]",
        f"linear 0.mlp_in[0:64] {of}.mlp.up_proj.weight 0.up[0:48]",
        "silu_mul 0.gate[0:48] 0.up[0:48] 0.active[0:48]",
        f"linear 0.active[0:48] {of}.mlp.down_proj.weight 0.down[0:64]",
        "all_reduce 0.down[0:64] 0.down[0:64]",
        "add 0.down[0:64] x[0:64]",
    ]


def test_one_rank_is_the_graph_as_it_is():
    whole = graph(checkpoint())
    assert shard(whole, 1) is whole
    assert not COLLECTIVES & {call.op for call in lowered(1).plan.calls}
    assert '"ranks"' not in to_json(lowered(1).plan)
    assert '"split"' not in to_json(lowered(1).plan)


def test_a_rank_has_its_share_of_weights_and_cache():
    one, two = lowered(1).plan, lowered(2).plan
    assert two.cache_bytes == one.cache_bytes // 2
    weights = {weight.name: weight for weight in two.weights}
    stacked = weights["model.layers.0.self_attn.q_proj+k_proj+v_proj.weight"]
    assert (stacked.shape, stacked.split) == ((64, 64), "rows")
    down = weights["model.layers.1.mlp.down_proj.weight"]
    assert (down.shape, down.split) == ((64, 48), "columns")
    assert weights["model.embed_tokens.weight"].split == ""
    assert from_json(to_json(two)) == two


def test_a_head_of_its_own_is_divided_by_the_vocabulary_and_a_tied_one_is_not():
    tied, own = (calls(shard(graph(source), 2))[-3:] for source in (checkpoint(), own_head()))
    assert tied[1:] == ["linear last_in[0:64] model.embed_tokens.weight logits[0:48]", "sample logits[0:48]"]
    assert own == [
        "linear last_in[0:64] lm_head.weight logits.share[0:24]",
        "all_gather logits.share[0:24] logits[0:48]",
        "sample logits[0:48]",
    ]


def test_collectives_are_bound_to_no_kernel():
    found = lowered(2, own_head())
    assert not COLLECTIVES & {binding.op for binding in found.bindings}
    assert [call.op for call in found.plan.calls].count("all_reduce") == 4
    assert {call.symbol for call in found.plan.calls} - {binding.symbol for binding in found.bindings} == COLLECTIVES


@pytest.mark.parametrize(
    ("ranks", "changes", "words", "fix"),
    [
        (3, {}, "2 key and value heads cannot be divided among 3 ranks", "among 1, 2;"),
        (4, {}, "2 key and value heads cannot be divided among 4 ranks", "among 1, 2;"),
        (
            4,
            {"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 98},
            "98 feed-forward columns cannot be divided among 4 ranks",
            "among 1, 2;",
        ),
        (
            2,
            {"intermediate_size": 99},
            "99 feed-forward columns cannot be divided among 2 ranks",
            "this model is not divided: set device.count = 1",
        ),
    ],
)
def test_what_cannot_be_divided_is_said(ranks, changes, words, fix):
    source = checkpoint(**changes)
    for name, tensor in source.tensors.items():
        if "k_proj" in name or "v_proj" in name:
            rows = 16 * source.config["num_key_value_heads"]
            source.tensors[name] = replace(tensor, shape=(rows, 64))
        if "mlp" in name:
            ffn = source.config["intermediate_size"]
            source.tensors[name] = replace(tensor, shape=(64, ffn) if "down" in name else (ffn, 64))
    with pytest.raises(ResolutionError) as caught:
        lowered(ranks, source)
    assert caught.value.what == words
    assert caught.value.where == "device.count"
    assert fix in caught.value.fix


def test_rows_of_a_head_of_its_own_are_counted():
    tensors = {**llama_tensors(), "lm_head.weight": Tensor("f32", (47, 64))}
    tensors["model.embed_tokens.weight"] = Tensor("f32", (47, 64))
    with pytest.raises(ResolutionError, match="47 rows of the head cannot be divided among 2 ranks"):
        lowered(2, checkpoint(tensors, tie_word_embeddings=False, vocab_size=47))


def divided(g):
    """A feed-forward whose middle is divided."""
    x = g.embed("x", "table", 8, 64)
    return x, g.silu_mul("active", g.linear("gate", x, "gate", 32), g.linear("up", x, "up", 32))


SHAPES = {"table": (8, 64), "gate": (32, 64), "up": (32, 64), "down": (64, 32), "norm": (32,)}


def test_a_norm_over_columns_that_other_ranks_have_is_refused():
    g = builder(**SHAPES)
    _, active = divided(g)
    y = g.linear("down", g.rms_norm("normed", active, "norm", 1e-5), "down", 64)
    made = g.finish(g.linear("logits", y, "table", 8))
    with pytest.raises(BuildError, match="rms_norm of active needs columns that other ranks have"):
        shard(made, 2)


def test_a_value_that_is_read_again_cannot_be_added_to():
    g = builder(**{name: shape for name, shape in SHAPES.items() if name != "norm"})
    x, active = divided(g)
    total = g.add("total", x, g.linear("down", active, "down", 64))
    made = g.finish(g.linear("logits", g.add("both", total, x), "table", 8))
    with pytest.raises(BuildError, match="x is read again after something was added to it"):
        shard(made, 2)


def test_a_weight_divided_in_two_ways_is_refused():
    g = builder(table=(8, 64), square=(64, 64), up=(64, 64))
    x = g.embed("x", "table", 8, 64)
    active = g.silu_mul("active", g.linear("gate", x, "square", 64), g.linear("up", x, "up", 64))
    made = g.finish(g.linear("logits", g.linear("down", active, "square", 64), "table", 8))
    with pytest.raises(BuildError, match="square would be divided in two ways"):
        shard(made, 2)


def test_a_plan_of_one_rank_calls_no_collective_and_has_no_shares():
    plan = lowered(2).plan
    with pytest.raises(WorkerError, match="split by 'rows' among 1 ranks"):
        check(replace(plan, ranks=1))
    whole = tuple(replace(weight, split="") for weight in plan.weights)
    with pytest.raises(WorkerError, match="all_reduce of one rank"):
        check(replace(plan, ranks=1, weights=whole))
    with pytest.raises(WorkerError, match="0 ranks"):
        check(replace(plan, ranks=0))


# Bytes of each format whose every block differs.
@pytest.mark.parametrize(("format_", "shape"), [("f32", (6, 8)), ("bf16", (12, 32)), ("q8_0", (4, 128))])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_shares_side_by_side_are_the_tensor(format_, shape, split):
    rows, columns = matrix(shape)
    stride = row_bytes(format_, columns, "a")
    raw = np.random.default_rng(3).integers(0, 255, (rows, stride), np.uint8)
    source = Checkpoint("x", {}, {"a": Tensor(format_, shape)}, lambda _, start, stop: raw[start:stop].tobytes())
    own = (rows // 2, columns) if split == "rows" else (rows, columns // 2)
    weight = Weight("a", own, format_, "rows", raw.size // 2, ("a",), (), split)
    parts = []
    for rank in range(2):
        part = share(weight, source, rank, 2)
        check_sources(weight, part)
        parts.append(np.frombuffer(b"".join(packed_chunks(weight, part)), np.uint8).reshape(own[0], -1))
    np.testing.assert_array_equal(np.concatenate(parts, axis=int(split == "columns")), raw)


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_a_tensor_that_is_no_whole_number_of_shares_is_refused(split):
    source = Checkpoint("x", {}, {"a": Tensor("f32", (9, 9))}, lambda *_: b"")
    weight = Weight("a", (4, 9) if split == "rows" else (9, 4), "f32", "rows", 144, ("a",), (), split)
    with pytest.raises(BuildError, match="the plan expects"):
        check_sources(weight, share(weight, source, 0, 2))
