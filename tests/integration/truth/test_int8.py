"""int8 weights on the software GPU: the oracle's logits over the same weights, and how far they are from bf16's."""

from __future__ import annotations

import pytest

from pih_runtime.plan import Limits
from pih_steps.lower.quantized import stored_as
from tests.truth import models
from tests.truth.compare import mean_kl
from tests.truth.drive import Driver

LIMITS = Limits(tokens=64, seqs=32, context=128)
COUNT = 24
FURTHEST = 1e-3  # nats


@pytest.fixture(scope="module")
def checkpoint(tiny):
    return stored_as("int8", tiny.checkpoint)


@pytest.fixture(scope="module")
def truth(tiny, checkpoint):
    return Driver(models.torch_backend(checkpoint, tiny.graph, LIMITS)).logits(tiny.ids[:COUNT])


def test_the_kernels_agree_with_the_oracle_over_the_same_weights(tiny, checkpoint, truth, gpu):
    backend = models.cuda_backend("sm_89", gpu)(checkpoint, tiny.graph, LIMITS)
    driver = Driver(backend)
    try:
        assert mean_kl(truth, driver.logits(tiny.ids[:COUNT])) <= FURTHEST
        steps = [driver.greedy(tiny.ids[:20], 4, slot=1), driver.greedy(tiny.ids[:20], 4, [7, 1, 12], slot=2)]
    finally:
        backend.stop()
    assert steps[0] == steps[1]
    assert {weight.format for weight in backend.plan.weights} == {"int8", "f32"}


def test_they_are_near_to_bf16(tiny, truth, record_property):
    whole = Driver(models.torch_backend(tiny.checkpoint, tiny.graph, LIMITS)).logits(tiny.ids[:COUNT])
    far = mean_kl(whole, truth)
    record_property("kl", far)
    assert 0 < far <= FURTHEST
