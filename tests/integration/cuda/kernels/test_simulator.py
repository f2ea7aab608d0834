"""The software GPU reports what a device would answer with a fault, or worse, with a wrong number."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.cuda.kernels.toys import THREADS
from tests.support.launches import Launcher, Step, abi


@pytest.fixture(scope="module")
def run(toys):
    """run(name, x, y): y as the kernel leaves it."""
    kernels = Launcher(toys, {})

    def run(name, x=64, y=64, blocks=1, **how):
        launch = abi.Launch(name, 1 << 30, THREADS.get(name, 64), 1, 0, blocks, 1, 1)
        operands = [np.arange(x, dtype=np.float32), np.zeros(y, np.float32)]
        return kernels.run(launch, operands, Step(1), **how)[0][1]

    return run


def test_a_kernel_that_errs_in_nothing(run):
    assert list(run("copy")) == list(range(64))


@pytest.mark.parametrize(("name", "at_end"), [("ahead", True), ("behind", False)])
def test_a_read_past_either_end(run, name, at_end):
    run(name, at_end=not at_end)  # what lies there is garbage, but readable
    with pytest.raises(RuntimeError, match="700: address"):
        run(name, at_end=at_end)


def test_a_write_past_the_end(run):
    with pytest.raises(RuntimeError, match="700: address"):
        run("copy", y=32)
    with pytest.raises(AssertionError, match="past the last byte"):
        run("copy", y=32, at_end=False)


def test_a_misaligned_access(run):
    with pytest.raises(RuntimeError, match="716: misaligned"):
        run("misaligned")


def test_a_barrier_that_not_all_threads_reach(run):
    run("barrier")
    for name in ("barrier_of_some", "two_barriers"):
        with pytest.raises(RuntimeError, match="719: a barrier that not all threads reach"):
            run(name)


def test_a_warp_operation_that_not_all_lanes_reach(run):
    assert set(run("sum")[:32]) == {32}
    with pytest.raises(RuntimeError, match="719: a warp operation that not all lanes reach"):
        run("sum_of_some")


def test_shared_memory_that_nobody_wrote(run):
    assert np.isnan(run("shared", y=32, seed=1)).all()
    assert not run("shared", y=32, seed=2).any()


def test_a_race_shows_in_some_order_of_warps(run):
    right = np.arange(63, -1, -1)
    found = [np.array_equal(run("race", seed=seed), right) for seed in range(1, 9)]
    assert not all(found)


def test_a_race_between_blocks_shows_in_some_order(run):
    for name, right in (("last", True), ("last_too_soon", False)):
        found = [set(run(name, y=256, blocks=3, seed=seed)[192:]) == {3} for seed in range(1, 17)]
        assert all(found) == right, name
