"""backend/torch by itself: sampling as `ops` words it, clear refusals, a start from a bundle's folder."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih_runtime.errors import WorkerError
from pih_runtime.ops import uniform
from pih_runtime.plan import Limits, to_json
from pih_runtime.step import Sampling
from tests.truth import models
from tests.truth.drive import Driver, Part

LIMITS = Limits(tokens=16, seqs=4, context=48)


@pytest.fixture(scope="module")
def torch_plugin(tiny):
    """The plugin's modules, and what the tiny model lowers to for it."""
    models.torch_backend(tiny.checkpoint, tiny.graph, LIMITS)
    import pih_backend_torch
    from pih_backend_torch import sample

    lowered = models.lowered_for("backend/torch", tiny.checkpoint, tiny.graph, LIMITS, "f32", "x86-64-v3")
    weights = models.Packed(lowered, tiny.checkpoint)
    return SimpleNamespace(plugin=pih_backend_torch, sample=sample.sample, plan=lowered.plan, weights=weights)


@pytest.fixture
def backend(torch_plugin):
    return torch_plugin.plugin.TorchBackend(torch_plugin.plan, torch_plugin.weights)


def sampled(logits, how, position):
    """The definition, word by word, in plain Python."""
    order = sorted(range(len(logits)), key=lambda index: (-logits[index], index))
    if how.temperature == 0:
        return order[0]
    kept = order[: how.top_k] if how.top_k else order
    weights = [math.exp((logits[index] - logits[kept[0]]) / how.temperature) for index in kept]
    p = [weight / sum(weights) for weight in weights]
    length = next((n for n in range(1, len(p) + 1) if sum(p[:n]) >= how.top_p), len(p))
    p = [share for share in p[:length] if not share < how.min_p * p[0]]
    draw, total = uniform(how.seed, position) * sum(p), 0.0
    for index, share in zip(kept, p, strict=False):
        total += share
        if total > draw:
            return index
    return kept[len(p) - 1]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=40),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
        top_k=st.integers(0, 5),
        top_p=st.sampled_from([0.05, 0.31, 0.83, 1.0]),
        min_p=st.sampled_from([0.0, 0.011, 0.29]),
        seed=st.integers(0, 2**64 - 1),
    ),
    st.integers(0, 40000),
)
def test_sampling_is_as_defined(torch_plugin, logits, how, position):
    import torch

    assert torch_plugin.sample(torch.tensor([logits]), [how], [position]) == [sampled(logits, how, position)]


def test_logits_are_those_of_the_wanted_rows(backend, tiny):
    ids, logits = Driver(backend).step([Part(0, 0, tiny.ids[:9], wanted=[2, 8])])
    assert np.abs(logits - tiny.truth[[2, 8]]).max() < 1e-4
    assert ids == [int(row.argmax()) for row in logits]


def step(driver, **changes):
    return replace(driver.batch([Part(0, 0, [1, 2, 3])]), **changes)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ids", [1, 512, 3], "ids must lie in 0..511"),
        ("ids", [1, -1, 3], "ids must lie in 0..511, got -1"),
        ("positions", [0, 1, 48], "positions must lie in 0..47"),
        ("rows", [3], "rows must lie in 0..2"),
        ("row_slots", [4], "row_slots must lie in 0..3"),
        ("page_table", [99], "page_table must lie in"),
        ("slots", [0, 1, 9999], "slots must lie in"),
    ],
)
def test_a_step_past_the_plans_limits_is_refused(backend, name, value, message):
    from array import array

    with pytest.raises(WorkerError, match=message):
        backend.submit(step(Driver(backend), **{name: array("i", value)}))


def test_a_step_of_too_many_tokens_is_refused(backend):
    with pytest.raises(WorkerError, match="a step of 17 tokens"):
        backend.submit(Driver(backend).batch([Part(0, 0, [1] * 17)]))


def test_at_most_two_steps_wait(backend):
    driver = Driver(backend)
    tickets = [backend.submit(step(driver)) for _ in range(2)]
    with pytest.raises(WorkerError, match="2 steps are in flight"):
        backend.submit(step(driver))
    assert backend.wait(tickets[1]) == backend.wait(tickets[0])
    with pytest.raises(WorkerError, match="not a ticket"):
        backend.wait(tickets[0])


def test_a_plan_for_another_pack_is_refused(torch_plugin, tiny):
    other = models.lowered_for("kernels/cpu", tiny.checkpoint, tiny.graph, LIMITS, "f32", "x86-64-v3")
    with pytest.raises(WorkerError, match=r"is bf16 pair16"):
        torch_plugin.plugin.TorchBackend(other.plan, models.Packed(other, tiny.checkpoint))


def test_it_starts_from_a_bundle(torch_plugin, tiny, tmp_path):
    (tmp_path / "plan.json").write_text(to_json(torch_plugin.plan))
    providers = {"platform.host": SimpleNamespace(threads=2), "storage.weights": torch_plugin.weights}
    backend = torch_plugin.plugin.start(SimpleNamespace(root=tmp_path, provider=providers.__getitem__))
    assert len(Driver(backend).greedy(tiny.ids[:5], 3)) == 3
    backend.stop()


def test_a_bundle_without_a_plan_is_refused(torch_plugin, tmp_path):
    with pytest.raises(WorkerError, match=r"plan.json: cannot read"):
        torch_plugin.plugin.start(SimpleNamespace(root=tmp_path, provider={}.__getitem__))
