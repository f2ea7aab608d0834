"""Steps of decodes as graphs on the software GPU: the same bits as without, and how much is recorded and launched."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Limits
from pih_runtime.step import Sampling
from tests.truth import models
from tests.truth.drive import Driver, Part

LIMITS = Limits(tokens=32, seqs=6, context=64)


class Counted:
    """A driver whose calls are counted, and of which one may be refused."""

    def __init__(self, driver):
        self.driver, self.calls, self.refused = driver, Counter(), {}

    def declare(self, functions):
        self.driver.declare(functions)

    def __call__(self, name, *arguments):
        self.calls[name] += 1
        if self.refused.get(name) == self.calls[name]:
            raise WorkerError(f"{name}: refused", where="the CUDA driver")
        self.driver(name, *arguments)


def make(tiny, gpu, *, graphs, refused=()):
    seen = []

    def wrap(driver):
        seen.append(Counted(driver))
        seen[0].refused = dict(refused)
        return seen[0]

    factory = models.cuda_backend("sm_89", gpu, graphs=graphs, wrap=wrap)
    try:
        return factory(tiny.checkpoint, tiny.graph, LIMITS), seen[0]
    except WorkerError as problem:
        problem.counted = seen[0]
        raise


@pytest.fixture(scope="module")
def both(tiny, gpu):
    """(backend, counted driver) without graphs and with them."""
    made = [make(tiny, gpu, graphs=graphs) for graphs in (False, True)]
    yield made
    for backend, _ in made:
        backend.stop()


def test_logits_have_the_same_bits_in_every_batch_mixed_with_prefills(both, tiny):
    plain, recorded = (Driver(backend) for backend, _ in both)
    warm = Sampling(temperature=0.8, top_k=20, seed=5)
    lengths = {slot: 3 + 5 * slot for slot in range(6)}
    steps = [[Part(slot, 0, tiny.ids[slot : slot + length])] for slot, length in lengths.items()]
    for count in (1, 2, 3, 5, 4, 6):  # each bucket, whole and not
        steps.append([Part(slot, lengths[slot], [-(slot + 1)], sampling=warm) for slot in range(count)])
        for slot in range(count):
            lengths[slot] += 1
    steps.append([Part(0, lengths[0], [-1]), Part(5, 0, tiny.ids[:9])])  # a decode beside a prefill
    steps.append([Part(slot, lengths[slot] + (slot == 0), [-(slot + 1)]) for slot in range(5)])
    steps.append([Part(0, lengths[0] + 2, [-1], wanted=())])  # nobody wants its logits
    steps.append([Part(0, lengths[0] + 3, [-1]), Part(1, lengths[1] + 1, [5], wanted=()), Part(2, 8, [-3])])
    for parts in steps:
        (ids, logits), (ids_here, logits_here) = plain.step(parts), recorded.step(parts)
        assert ids_here == ids
        np.testing.assert_array_equal(logits_here, logits)


def test_one_launch_a_step_of_decodes_and_none_is_recorded_again(both, tiny):
    backend, counted = both[1]
    driver = Driver(backend)
    driver.step([Part(slot, 0, tiny.ids[:4]) for slot in range(3)])
    assert counted.calls["cuGraphInstantiateWithFlags"] == 4  # 1, 2, 4 and the limit of 6
    before = Counter(counted.calls)
    for at in range(4, 8):
        driver.step([Part(slot, at, [-(slot + 1)], wanted=None if slot < at % 3 else ()) for slot in range(3)])
    made = counted.calls - before
    assert made["cuGraphLaunch"] == 4
    assert made["cuLaunchKernel"] == made["cuStreamBeginCapture_v2"] == 0
    assert made["cuMemcpyHtoDAsync_v2"] == made["cuMemcpyDtoHAsync_v2"] == 4


def test_without_them_nothing_is_recorded(both):
    assert not [name for name in both[0][1].calls if "Graph" in name or "Capture" in name]


def test_two_steps_in_flight_are_replayed_in_their_order(both, tiny):
    texts = []
    for backend, _ in both:
        driver = Driver(backend)
        driver.step([Part(0, 0, tiny.ids[:6])])
        tickets = [backend.submit(driver.batch([Part(0, at, [-1])])) for at in (6, 7)]
        texts.append([backend.wait(ticket) for ticket in tickets])
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "refused",
    [
        ("cuStreamBeginCapture_v2", 2),
        ("cuLaunchKernel", 7),
        ("cuStreamEndCapture", 1),
        ("cuGraphInstantiateWithFlags", 3),
        ("cuGraphDestroy", 1),
    ],
    ids=lambda item: item[0],
)
def test_what_the_driver_refuses_while_recording_is_told_and_nothing_recorded_stays(tiny, gpu, refused, capfd):
    with pytest.raises(WorkerError, match=f"{refused[0]}: refused") as caught:
        make(tiny, gpu, graphs=True, refused=[refused])
    calls = caught.value.counted.calls
    assert "Traceback" not in capfd.readouterr().err
    made = calls["cuStreamEndCapture"] - (refused[0] == "cuStreamEndCapture")
    assert calls["cuGraphDestroy"] == made
    assert calls["cuStreamBeginCapture_v2"] - (refused[0] == "cuStreamBeginCapture_v2") == calls["cuStreamEndCapture"]


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (9, (1, 2, 4, 8, 9))]
)
def test_sizes_are_powers_of_two_and_the_limit(both, most, sizes):
    from pih_backend_cuda_graphs.graphs import buckets

    assert buckets(most) == sizes
