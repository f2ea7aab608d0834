"""The plan in float32 against `transformers` in float32: the same logits, and every planted bug shows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.truth import models
from tests.truth.compare import largest_difference
from tests.truth.drive import Driver
from tests.truth.models import MANY_ROWS as LIMITS

TOLERANCE = 1e-4


def difference(model, checkpoint=None, graph=None):
    backend = models.torch_backend(checkpoint or model.checkpoint, graph or model.graph, LIMITS)
    return largest_difference(model.truth, Driver(backend).logits(model.ids))


def test_smollm2_dequantised_from_its_file(smollm2):
    assert difference(smollm2) <= TOLERANCE


def test_tiny_qwen3(tiny):
    assert difference(tiny) <= TOLERANCE


def test_tiny_llama_in_both_orders_of_q_and_k(tiny_llama):
    assert difference(tiny_llama) <= TOLERANCE


def test_tiny_llama_with_an_output_head_of_its_own():
    checkpoint = models.llama_checkpoint({**models.TINY_LLAMA, "tie_word_embeddings": False}, "half")
    ids = list(range(0, 500, 7))
    truth = models.reference_logits(models.transformers_of(checkpoint), ids)
    model = SimpleNamespace(checkpoint=checkpoint, graph=models.graph_of("llama"), ids=ids, truth=truth)
    assert difference(model) <= TOLERANCE


def test_qwen3_in_its_true_shape():
    checkpoint = models.qwen3_checkpoint({})
    ids = [(token * 7919) % 151936 for token in range(64)]
    truth = models.reference_logits(models.transformers_of(checkpoint), ids)
    model = SimpleNamespace(checkpoint=checkpoint, graph=models.graph_of("qwen3"), ids=ids, truth=truth)
    assert difference(model) <= TOLERANCE


@pytest.mark.parametrize(("key", "value"), [("rms_norm_eps", 1e-5), ("rope_theta", 999000)])
def test_a_wrong_figure_of_the_config_shows(tiny, key, value):
    wrong = replace(tiny.checkpoint, config={**tiny.checkpoint.config, key: value})
    assert difference(tiny, checkpoint=wrong) > TOLERANCE


def test_a_wrong_order_of_rotated_pairs_shows(tiny_llama):
    other = {"half": "adjacent", "adjacent": "half"}[tiny_llama.checkpoint.config["rope_pairs"]]
    wrong = replace(tiny_llama.checkpoint, config={**tiny_llama.checkpoint.config, "rope_pairs": other})
    assert difference(tiny_llama, checkpoint=wrong) > TOLERANCE


@pytest.mark.parametrize("norm", ["q_norm", "k_norm"])
def test_a_head_norm_left_out_shows(tiny, norm):
    def graph(*arguments):
        whole = tiny.graph(*arguments)
        kept = [node for node in whole.nodes if not any(norm in operand.weight for operand in node.operands)]
        assert len(kept) == len(whole.nodes) - 3
        return replace(whole, nodes=tuple(kept))

    assert difference(tiny, graph=graph) > TOLERANCE


def test_a_wrong_map_of_query_to_key_heads_shows(tiny, monkeypatch):
    models.torch_backend(tiny.checkpoint, tiny.graph, LIMITS)
    from pih_backend_torch import ops

    right = ops.RUN["attention"]

    def interleaved(batch, attrs, q, cache, y):
        """Head h sees kv head h % Hk: the query heads in another order, there and back."""
        heads, kv_heads, dim = q.shape[1] // attrs["head_dim"], cache.shape[2], attrs["head_dim"]
        order = [h for kv in range(kv_heads) for h in range(kv, heads, kv_heads)]
        columns = [h * dim + i for h in order for i in range(dim)]
        out = y.clone()
        right(batch, attrs, q[:, columns], cache, out)
        y[:, columns] = out

    monkeypatch.setitem(ops.RUN, "attention", interleaved)
    assert difference(tiny) > TOLERANCE


@pytest.mark.parametrize("shift", [1, -1])
def test_a_mask_off_by_one_shows(tiny, monkeypatch, shift):
    models.torch_backend(tiny.checkpoint, tiny.graph, LIMITS)
    from pih_backend_torch import ops

    right = ops.RUN["attention"]

    def shifted(batch, *operands):
        last = batch.positions[-1]
        right(replace(batch, positions=(batch.positions + shift).clamp(0, int(last))), *operands)

    monkeypatch.setitem(ops.RUN, "attention", shifted)
    assert difference(tiny) > TOLERANCE
