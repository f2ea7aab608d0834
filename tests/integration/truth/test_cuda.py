"""Logits of the CUDA backend on the software GPU against backend/torch: prefill, chunked, decode, mixed company.

With bf16 and int8 weights, with and without graphs.
"""

from __future__ import annotations

import numpy as np
import pytest

from pih_runtime.plan import Limits
from pih_steps.lower.quantized import stored_as
from tests.truth import models, ways
from tests.truth.compare import mean_kl, same_top
from tests.truth.drive import Driver, Part

LIMITS = Limits(tokens=64, seqs=32, context=128)
COUNT = 24
FURTHEST = 1e-3  # nats


# A device, the format of the weights, and whether decodes are replayed as graphs.
DEPLOYED = [
    ("sm_89", "stored", False),
    ("sm_90", "stored", False),
    ("sm_90", "stored", True),
    ("sm_89", "int8", True),
    ("sm_90", "int8", False),
]


@pytest.fixture(scope="module", params=DEPLOYED, ids=lambda found: " ".join(map(str, found)))
def deployed(request, tiny):
    """The device, whether there are graphs, and the checkpoint with the weights that are loaded."""
    sm, weights, graphs = request.param
    return sm, graphs, stored_as(weights, tiny.checkpoint)


@pytest.fixture(scope="module")
def truth(tiny, deployed):
    """The oracle's logits over the same weights."""
    return Driver(models.torch_backend(deployed[2], tiny.graph, LIMITS)).logits(tiny.ids[:COUNT])


@pytest.fixture(scope="module")
def driver(tiny, deployed, gpu):
    sm, graphs, checkpoint = deployed
    backend = models.cuda_backend(sm, gpu, graphs=graphs)(checkpoint, tiny.graph, LIMITS)
    yield Driver(backend)
    backend.stop()
    assert backend.logits() == []


def in_company(driver, ids):
    """Two chunks and then single ids, beside a prefill, decodes and a sequence whose logits nobody wants."""
    driver.step([Part(4, 0, ids[5:15])])
    whole = []
    for number, (start, end) in enumerate([(0, 9), (9, 20), *((at, at + 1) for at in range(20, COUNT))]):
        others = [Part(4, 10 + number, [-5]), Part(5, 7 * number, ids[:7], wanted=())]
        _, logits = driver.step([others[0], Part(3, start, ids[start:end], range(end - start)), others[1]])
        whole.append(logits[1:])
    return np.concatenate(whole)


@pytest.mark.parametrize(
    "way",
    [lambda driver, ids: driver.logits(ids), ways.chunked, ways.decoded, in_company],
    ids=["prefill", "chunked", "decode", "mixed"],
)
def test_logits_are_the_oracles(driver, truth, tiny, way):
    logits = way(driver, tiny.ids[:COUNT])
    assert mean_kl(truth, logits) <= FURTHEST
    assert same_top(truth, logits) >= 0.95


def test_the_measure_shows_a_wrong_token(driver, truth, tiny):
    wrong = [(tiny.ids[0] + 1) % 512, *tiny.ids[1:COUNT]]
    assert mean_kl(truth, driver.logits(wrong)) > FURTHEST
