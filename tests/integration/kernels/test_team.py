"""The team: every call after the one before, whatever the number of threads, cores or parts; and it stops."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

from tests.integration.kernels.formats import aligned
from tests.integration.kernels.packs import ISAS, ROOT, Team, binding, pack_module
from tests.support.waiting import PATIENCE, until

# A call that adds its own row count to every value: a call run twice, left out or out of order shows in the sum.
BINDINGS = [
    *binding("linear_f32", "linear_f32.h", n=64, k=64, accumulate=0),
    *binding("gather", "gather.h", columns=64),
]


def permutation_chain(length):
    """Calls that permute 64 values over and over, between two buffers; numpy says what comes out."""
    rng = np.random.default_rng(length)
    orders = [rng.permutation(64) for _ in range(4)]
    weights = [aligned(np.eye(64, dtype=np.float32)[order]) for order in orders]
    x, y = aligned(np.arange(64, dtype=np.float32)[None].copy()), aligned(np.zeros((1, 64), np.float32))
    calls, wanted = [], np.arange(64, dtype=np.float32)
    for index in range(length):
        source, target = (x, y) if index % 2 == 0 else (y, x)
        calls.append(("linear_f32_n64_k64_accumulate0", 0, [source, weights[index % 4], target]))
        wanted = wanted[orders[index % 4]]
    return calls, (x if length % 2 == 0 else y), x, wanted


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("alone", [0, 1])
def test_calls_run_in_order_and_each_part_once(team, threads, parts, alone):
    here = team(BINDINGS, threads=threads)
    calls, result, start, wanted = permutation_chain(200)
    for _ in range(5):
        start[0] = np.arange(64)
        here.run(calls, parts=parts, alone=alone, tokens=1)
        assert np.array_equal(result[0], wanted)


def test_holds_when_neighbours_take_the_cores(team):
    here = team(BINDINGS, threads=2)
    calls, result, start, wanted = permutation_chain(300)
    busy = threading.Event()

    def disturb():
        block = np.zeros(1 << 20)
        while not busy.is_set():
            np.sin(block)

    neighbours = [threading.Thread(target=disturb) for _ in range(4)]
    for neighbour in neighbours:
        neighbour.start()
    try:
        begun = time.monotonic()
        for _ in range(10):
            start[0] = np.arange(64)
            here.run(calls, tokens=1)
            assert np.array_equal(result[0], wanted)
        assert time.monotonic() - begun < 60
    finally:
        busy.set()
        for neighbour in neighbours:
            neighbour.join()


def test_threads_that_come_late_join_the_running_step(isa, build):
    pack = pack_module.load_pack(build(isa, BINDINGS))
    late = Team(pack, 1)
    late.threads = 2
    calls, result, _, wanted = permutation_chain(10)
    runner = threading.Thread(target=late.run, args=(calls,), kwargs={"tokens": 1})
    runner.start()
    time.sleep(0.05)
    assert runner.is_alive()
    late.hosts = [threading.Thread(target=pack.thread, args=(late.address, 1))]
    late.hosts[0].start()
    runner.join(PATIENCE)
    assert not runner.is_alive()
    assert np.array_equal(result[0], wanted)
    late.stop()


def test_idle_threads_sleep(team):
    here = team(BINDINGS, threads=2)
    calls, *_ = permutation_chain(4)
    here.run(calls, tokens=1)

    def taken():
        before = time.process_time()
        time.sleep(0.5)
        return time.process_time() - before

    until(lambda: taken() < 0.1)  # they look around a little before they sleep


def test_pack_needs_no_library_and_has_only_what_was_bound(isa, build):
    path = build(isa, BINDINGS)
    library = ctypes.CDLL(str(path))
    exports = {"pih_abi", "pih_isa", "pih_team_bytes", "pih_thread", "pih_run", "pih_stop"}
    for name in exports | {one["symbol"] for one in BINDINGS}:
        assert getattr(library, name)
    content = path.read_bytes()
    assert b"attention" not in content
    assert b".so" not in content.replace(b"libc", b"")
    assert str(ROOT).encode() not in content


def test_pack_bytes_depend_on_nothing_around_them(ziglang, tmp_path, monkeypatch):
    from pih_steps import kernels
    from pih_steps.spec import Spec

    found = set()
    for index in range(2):
        folder = tmp_path / ("a" * (1 + 40 * index))
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setenv("TZ", f"UTC+{index}")
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        trees = {"kernels/include": ROOT / "kernels" / "include", "kernels/cpu": ROOT / "kernels" / "cpu"}
        bindings = BINDINGS if index == 0 else BINDINGS[::-1]
        kernels.run(
            Spec({"isa": ISAS[0], "bindings": bindings}, {"ziglang": ziglang}, trees, {}, (), folder / "pack.so")
        )
        found.add((folder / "pack.so").read_bytes())
        assert sorted(path.name for path in folder.iterdir()) == ["pack.so"]
    assert len(found) == 1


def test_tiny_values_count_as_zero_in_kernels_and_nowhere_else(team):
    here = team(BINDINGS, threads=2)
    x, y = aligned(np.full((1, 64), 1e-39, np.float32)), aligned(np.ones((1, 64), np.float32))
    here.run([("linear_f32_n64_k64_accumulate0", 0, [x, aligned(np.eye(64, dtype=np.float32)), y])], tokens=1)
    assert not y.any()
    assert (x * np.float32(1.0)).all()
