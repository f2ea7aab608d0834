"""The CPU pack, in the formats that the model's file stores, against `transformers` in float32."""

from __future__ import annotations

import pytest

from tests.truth import models
from tests.truth.compare import largest_difference, mean_kl, same_top
from tests.truth.drive import Driver
from tests.truth.models import MANY_ROWS as LIMITS


@pytest.fixture(scope="module", params=models.ISAS)
def isa(request):
    if not models.host_has(request.param):
        pytest.skip(f"this CPU lacks {request.param}")
    return request.param


@pytest.fixture(scope="module")
def logits(isa, smollm2):
    """The pack's logits over the text."""
    backend = models.cpu_backend(isa)(smollm2.checkpoint, smollm2.graph, LIMITS)
    yield Driver(backend).logits(smollm2.ids)
    backend.stop()


def test_smollm2_diverges_less_than_a_thousandth_of_a_nat(smollm2, logits):
    assert mean_kl(smollm2.truth, logits) <= 1e-3


def test_smollm2_prefers_the_same_token(smollm2, logits):
    assert same_top(smollm2.truth, logits) >= 0.99


def test_tiny_qwen3_in_bf16_weights_and_float32_cache(isa, tiny):
    backend = models.cpu_backend(isa, "f32")(tiny.checkpoint, tiny.graph, LIMITS)
    found = Driver(backend).logits(tiny.ids)
    backend.stop()
    assert largest_difference(tiny.truth, found) <= 1e-4


def test_qwen3_in_its_true_shape(isa):
    checkpoint = models.qwen3_checkpoint({})
    ids = [(token * 7919) % 151936 for token in range(64)]
    truth = models.reference_logits(models.transformers_of(checkpoint), ids)
    backend = models.cpu_backend(isa)(checkpoint, models.graph_of("qwen3"), LIMITS)
    found = Driver(backend).logits(ids)
    backend.stop()
    assert mean_kl(truth, found) <= 1e-3
    assert same_top(truth, found) >= 0.99
