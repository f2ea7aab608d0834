"""Steps of the CUDA backend on the software GPU past a chunk of attention, in full batches, two in flight, refused.

One deployment of one layer, its weights copied in many pieces, its decodes replayed as graphs; the oracle runs the same
steps.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Limits
from pih_runtime.step import Sampling
from tests.truth import models
from tests.truth.compare import mean_kl, same_top
from tests.truth.drive import Driver, Part

LIMITS = Limits(tokens=128, seqs=4, context=640)
CHUNK = 256  # positions whose sums attention makes by themselves: one block each in a step of decodes
FURTHEST = 1e-3  # nats
IDS = [int(token) for token in np.random.default_rng(9).integers(0, 512, LIMITS.context)]


class Refusing:
    """A driver of which one call of one function, the next, may be refused."""

    def __init__(self, driver):
        self.driver, self.refused = driver, ""

    def declare(self, functions):
        self.driver.declare(functions)

    def __call__(self, name, *arguments):
        if name == self.refused:
            self.refused = ""
            raise WorkerError(f"{name}: refused", where="the CUDA driver")
        self.driver(name, *arguments)


def one_layer():
    """A checkpoint of one layer, and its graph."""
    return models.qwen3_checkpoint({**models.TINY_QWEN3, "num_hidden_layers": 1}), models.graph_of("qwen3")


@pytest.fixture(scope="module")
def layer():
    return one_layer()


@pytest.fixture(scope="module")
def refusing():
    """The driver that the backend calls, once there is one."""
    return []


@pytest.fixture(scope="module")
def backend(layer, gpu, refusing):
    def wrap(driver):
        refusing.append(Refusing(driver))
        return refusing[0]

    factory = models.cuda_backend("sm_89", gpu, graphs=True, wrap=wrap)
    from pih_backend_cuda import upload

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "_PIECE", 1000)
        backend = factory(*layer, LIMITS)
    yield backend
    backend.stop()


@pytest.fixture
def driver(backend):
    return Driver(backend)


@pytest.fixture(scope="module")
def oracle(layer):
    return Driver(models.torch_backend(*layer, LIMITS))


def prefills(slot, end, start=0):
    """Steps that bring a sequence up to a length."""
    return [[Part(slot, at, IDS[at : min(at + 128, end)])] for at in range(start, end, 128)]


def compared(driver, oracle, steps):
    """Logits of all wanted rows: the oracle's, then these."""
    truth, logits = (np.concatenate([side.step(parts)[1] for parts in steps]) for side in (oracle, driver))
    return truth, logits


def test_logits_past_a_chunk_are_the_oracles(driver, oracle):
    steps = [*prefills(0, CHUNK - 3), *prefills(1, 600), *prefills(2, 5)]
    for at in range(CHUNK - 3, CHUNK + 3):  # decodes across the end of a chunk, beside a third chunk's and a short one
        mine = Part(0, at, [IDS[at]])
        others = [Part(1, at + 347, [IDS[at]]), Part(2, at - CHUNK + 8, [IDS[-at]])]
        steps.append([others[0], mine, others[1]])
    steps.append([Part(1, 606, IDS[:9], range(2)), Part(3, 0, IDS[:100]), Part(0, CHUNK + 3, [7])])
    steps.append([Part(slot, at, [slot]) for slot, at in enumerate((CHUNK + 4, 615, 11, 100))])  # a full batch
    steps.append([Part(slot, at, [slot] * (1 + 5 * (slot == 3))) for slot, at in enumerate((CHUNK + 5, 616, 12, 101))])
    truth, logits = compared(driver, oracle, steps)
    assert mean_kl(truth, logits) <= FURTHEST
    assert np.abs(truth - logits).max() < 0.05
    assert same_top(truth, logits) >= 0.95


def test_bits_past_a_chunk_depend_on_no_company(driver):
    """Whole prefills walk the chunks in one block, decodes give each its own."""
    for parts in prefills(0, 520):
        driver.step(parts)
    alone = driver.step([Part(0, 520, [IDS[520]])])[1]
    company = driver.step([Part(1, 0, IDS[:90]), Part(0, 520, [IDS[520]])])[1][1:]
    np.testing.assert_array_equal(company, alone)


HOW = [
    Sampling(2.0, top_k=2),
    Sampling(2.0, top_p=0.2),
    Sampling(2.0, min_p=0.6),
    Sampling(1.0, top_k=40, top_p=0.95, min_p=0.01),
    Sampling(4.0),
    Sampling(),
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_ids_are_those_that_the_oracle_draws_from_the_same_logits(driver, oracle, how):
    import torch
    from pih_backend_torch.sample import sample

    seeds = [at * 0x1000_0001_8000_0001 + 1 for at in range(16)]  # all 64 bits of them
    found, expected = [], []
    for at in range(0, len(seeds), 4):
        wishes = [replace(how, seed=seed) for seed in seeds[at : at + 4]]
        ids, logits = driver.step([Part(slot, 0, IDS[:2], sampling=wish) for slot, wish in enumerate(wishes)])
        found += ids
        expected += sample(torch.from_numpy(logits), wishes, [1] * 4)
    assert found == expected
    assert len(set(found)) > (how.temperature > 0)


def test_two_steps_in_flight_are_the_same_two(backend, driver):
    """Neither's arrays nor ids are the other's."""
    steps = [[Part(0, 0, IDS[:40])], [Part(1, 0, IDS[40:60]), Part(2, 0, IDS[60:63])]]
    alone = [driver.step(parts)[0] for parts in steps]
    other = driver.step([Part(slot, 0, IDS[at : at + 9]) for slot, at in enumerate((100, 120, 140))])[0]
    assert not set(other) & {*alone[0], *alone[1]}  # what the slots hold now
    tickets = [backend.submit(driver.batch(parts)) for parts in steps]
    with pytest.raises(WorkerError, match="2 steps are in flight already"):
        backend.submit(driver.batch(steps[0]))
    assert [backend.wait(ticket) for ticket in reversed(tickets)] == alone[::-1]


def test_a_ticket_is_good_once(backend, driver):
    ticket = backend.submit(driver.batch([Part(0, 0, IDS[:4])]))
    backend.wait(ticket)
    flying = [backend.submit(driver.batch([Part(slot, 0, IDS[slot : slot + 4])])) for slot in (1, 2)]
    for used in (ticket, None):
        with pytest.raises(WorkerError, match="not a ticket of this backend that is still waited for"):
            backend.wait(used)
    with pytest.raises(WorkerError, match="2 steps are in flight already"):
        backend.submit(driver.batch([Part(0, 0, IDS[:4])]))
    for one in flying:
        assert len(backend.wait(one)) == 1


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2", "cuEventRecord"])
def test_a_step_that_the_driver_refuses_leaves_room_for_the_next(backend, driver, refusing, function):
    driver.step([Part(0, 0, IDS[:4])])
    expected = driver.step([Part(0, 4, [5])])[0]
    for _ in range(3):
        refusing[0].refused = function
        with pytest.raises(WorkerError, match=f"{function}: refused"):
            backend.submit(driver.batch([Part(0, 4, [6])]))
    flying = [backend.submit(driver.batch([Part(0, 4, [5])])) for _ in range(2)]
    assert [backend.wait(ticket) for ticket in flying] == [expected, expected]


def test_pages_past_a_contexts_are_refused(backend, driver):
    good = driver.batch([Part(0, 0, IDS[:4])])
    with pytest.raises(WorkerError, match="41 pages a sequence, the plan takes 0 to 40"):
        backend.submit(replace(good, page_table=array("i", [1] * 41), pages_per_seq=41))
    widest = replace(good, page_table=array("i", [*good.page_table, *[0] * 39]), pages_per_seq=40)
    assert backend.wait(backend.submit(widest)) == driver.step([Part(0, 0, IDS[:4])])[0]


def test_any_thread_may_submit_and_wait(backend, driver):
    expected = driver.step([Part(0, 0, IDS[:8])])
    found = []

    def elsewhere(work):
        thread = Thread(target=lambda: found.append(work()))
        thread.start()
        thread.join()

    elsewhere(lambda: backend.submit(driver.batch([Part(0, 0, IDS[:8])])))
    elsewhere(lambda: backend.wait(found[0]))
    elsewhere(lambda: np.array([np.array(row, np.float32) for row in backend.logits()]))
    assert found[1] == expected[0]
    np.testing.assert_array_equal(found[2], expected[1])
