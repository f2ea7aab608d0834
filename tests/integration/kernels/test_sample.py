"""`sample` against a second implementation, written in Python from the op's definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih_runtime.ops import uniform
from tests.integration.kernels.formats import aligned
from tests.integration.kernels.packs import binding

SIZES = (50, 1000, 5003)
BINDINGS = [one for v in SIZES for one in binding("sample", "sample.h", v=v)]
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def draw(logits, temperature, top_k, top_p, min_p, seed, position, nudge=(0.0, 0.0, 0.0)):
    """The op's definition, step by step. `nudge` moves u, top_p and min_p: float32 terms may move a boundary."""
    if temperature == 0:
        return int(np.argmax(logits))
    scaled = logits / np.float32(temperature)
    order = np.lexsort((np.arange(len(scaled)), -scaled))
    if top_k:
        order = order[:top_k]
    p = np.exp(scaled[order].astype(np.float64) - float(scaled[order[0]]))
    p /= p.sum()
    if top_p < 1:
        count = int(np.searchsorted(np.cumsum(p), np.float32(top_p) + nudge[1])) + 1
        order, p = order[:count], p[:count]
    kept = p >= (np.float32(min_p) + nudge[2]) * p[0]
    kept[0] = True
    order, p = order[kept], p[kept]
    target = (uniform(seed, position) + nudge[0]) * p.sum()
    return int(order[min(int(np.searchsorted(np.cumsum(p), target, side="right")), len(order) - 1)])


def acceptable(*arguments):
    """Ids that the definition gives within the rounding of float32."""
    return {draw(*arguments, nudge) for nudge in itertools.product((-2e-6, 0.0, 2e-6), repeat=3)}


def run(here, v, rows, *, suffix="", position=0, threads=1):
    """rows: (logits, temperature, top_k, top_p, min_p, seed); returns the ids."""
    logits = aligned(np.array([row[0] for row in rows], np.float32))
    scratch = aligned(np.zeros((threads, 2 * v), np.float32))
    sampled = here_array(len(rows))
    here.run(
        [(f"sample{suffix}_v{v}", 1, [logits])], tokens=len(rows), wanted=len(rows), rows=range(len(rows)),
        row_slots=range(len(rows) - 1, -1, -1), positions=[position + i for i in range(len(rows))],
        sampling=[row[1:] for row in rows], scratch=scratch, scratch_floats=2 * v, sampled=sampled,
    )  # fmt: skip
    return list(reversed(sampled))


def here_array(count):
    from array import array

    return array("i", [-1] * count)


@st.composite
def cases(draw_from):
    v = draw_from(st.sampled_from(SIZES))
    seed = draw_from(st.integers(0, 2**64 - 1))
    rng = np.random.default_rng(draw_from(st.integers(0, 2**32)))
    logits = (rng.standard_normal(v) * draw_from(st.sampled_from([0.0, 0.1, 3.0, 30.0]))).astype(np.float32)
    if draw_from(st.booleans()):
        logits = np.round(logits)  # many ties
    temperature = draw_from(st.sampled_from([0.0, 0.05, 0.6, 1.0, 2.5]))
    top_k = draw_from(st.sampled_from([0, 1, 2, 20, v - 1, v, v + 7]))
    top_p = draw_from(st.sampled_from([0.0, 0.3, 0.95, 1.0]))
    min_p = draw_from(st.sampled_from([0.0, 0.05, 0.9]))
    return v, logits, (temperature, top_k, top_p, min_p, seed), draw_from(st.integers(0, 100_000))


@RELAXED
@given(case=cases(), suffix=st.sampled_from(["", "_ref"]))
def test_agrees_with_the_definition(team, case, suffix):
    v, logits, sampling, position = case
    if suffix and v > 1000:
        return
    (found,) = run(team(BINDINGS), v, [(logits, *sampling)], position=position, suffix=suffix)
    assert found in acceptable(logits, *sampling, position)


def test_greedy_takes_the_lowest_of_equal_ids(team):
    logits = np.full(1000, -3, np.float32)
    logits[[700, 411, 999]] = 2
    assert run(team(BINDINGS), 1000, [(logits, 0.0, 0, 1.0, 0.0, 5)]) == [411]


def test_greedy_in_a_distribution_of_extremes(team):
    logits = np.full(50, -np.inf, np.float32)
    logits[17] = -1e30
    assert run(team(BINDINGS), 50, [(logits, 0.0, 0, 1.0, 0.0, 5)]) == [17]
    assert run(team(BINDINGS), 50, [(logits, 1.0, 0, 1.0, 0.0, 5)]) == [17]


def test_frequencies_follow_the_softmax(team):
    here = team(BINDINGS)
    logits = np.full(50, -1e9, np.float32)
    logits[[3, 9, 30]] = np.log([0.5, 0.3, 0.2])
    rows = [(logits, 1.0, 0, 1.0, 0.0, seed) for seed in range(4000)]
    counts = np.bincount(run(here, 50, rows), minlength=50)
    assert counts[[3, 9, 30]].sum() == 4000
    assert np.allclose(counts[[3, 9, 30]] / 4000, [0.5, 0.3, 0.2], atol=0.03)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rows_have_their_own_parameters_and_do_not_meet(team, threads):
    here = team(BINDINGS, threads=threads)
    rng = np.random.default_rng(8)
    rows = [
        ((rng.standard_normal(1000) * 3).astype(np.float32), temperature, top_k, top_p, min_p, int(rng.integers(2**63)))
        for temperature, top_k, top_p, min_p in itertools.product([0.0, 0.8], [0, 20], [0.9, 1.0], [0.0, 0.1])
    ]
    together = run(here, 1000, rows, position=40, threads=threads)
    for index, row in enumerate(rows):
        assert run(here, 1000, [row], position=40 + index, threads=threads) == together[index : index + 1]
