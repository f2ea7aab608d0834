"""The software GPU reports what a device would answer with a fault, or worse, with a wrong number."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import struct
import threading

import numpy as np
import pytest

from tests.support import simgpu
from tests.support.launches import Launcher, Step, abi
from tests.support.program import ROOT

ENTRIES = {
    "copy": "toy_copy(copy, 0, 64)",
    "ahead": "toy_copy(ahead, 1, 64)",
    "behind": "toy_copy(behind, -1, 64)",
    "misaligned": "toy_misaligned(misaligned)",
    "barrier": "toy_barrier(barrier, 64)",
    "barrier_of_some": "toy_barrier(barrier_of_some, 32)",
    "two_barriers": "toy_two_barriers(two_barriers)",
    "sum": "toy_sum(sum, 32)",
    "sum_of_some": "toy_sum(sum_of_some, 31)",
    "shared": "toy_shared(shared)",
    "race": "toy_race(race)",
}
THREADS = {"misaligned": 32, "sum": 32, "sum_of_some": 32, "shared": 32}


@pytest.fixture(scope="module")
def module(folder):
    sources = folder / "toys"
    shutil.copytree(ROOT / "kernels/cuda", sources, dirs_exist_ok=True)
    shutil.copy(ROOT / "tests/integration/cuda/kernels/toys.cuh", sources)
    text = "".join(["#include <toys.cuh>\n", *(f"PIH_ENTRIES_{entry}\n" for entry in ENTRIES.values())])
    return simgpu.module(folder, text, sources)


@pytest.fixture(scope="module")
def run(module):
    """run(name, x, y): y as the kernel leaves it."""
    kernels = Launcher(module, {})

    def run(name, x=64, y=64, **how):
        launch = abi.Launch(name, 1 << 30, THREADS.get(name, 64), 1, 0, 1, 1, 0)
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


class Driver:
    """A libcuda.so.1 of its own, with one stream and the toys as the module of a made-up cubin."""

    def __init__(self, library, cubin):
        self.library = ctypes.CDLL(str(library))
        self.context, self.stream, self.module = (ctypes.c_void_p() for _ in range(3))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 0)
        self.call("cuModuleLoadData", ctypes.byref(self.module), cubin)

    def call(self, name, *arguments, code=0):
        assert getattr(self.library, name)(*arguments) == code, name

    def memory(self, values):
        """A device's copy of a numpy array."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(values.nbytes))
        self.call("cuMemcpyHtoD_v2", address, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes))
        return address

    def queue(self, name, x, y):
        function, call, step = ctypes.c_void_p(), abi.CCall(), abi.CStep()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        call.operand[0].data, call.operand[1].data = x.value, y.value
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(call), ctypes.addressof(step))
        self.call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, self.stream, parameters, None)

    def values(self, address, count):
        found = np.zeros(count, np.float32)
        self.call(
            "cuMemcpyDtoHAsync_v2",
            found.ctypes.data_as(ctypes.c_void_p),
            address,
            ctypes.c_size_t(found.nbytes),
            self.stream,
        )
        self.call("cuStreamSynchronize", self.stream)
        return found


@pytest.fixture
def device(folder, module, tmp_path, monkeypatch):
    # an ELF header for sm_89, whose table of sections is empty
    cubin = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 64, 64, 89 << 8, 64, 0, 0, 64, 0, 0)
    (tmp_path / f"{hashlib.sha256(cubin).hexdigest()}.so").symlink_to(module)
    settings = simgpu.settings(tmp_path, log=tmp_path / "log")
    monkeypatch.setenv("PIH_SIMGPU", settings)
    # the library keeps its state, so this test takes a copy, under a name that no backend in this process asks for
    copy = tmp_path / "this-test.so"
    copy.write_bytes(
        (simgpu.driver(folder) / "libcuda.so.1").read_bytes().replace(b"libcuda.so.1\0", b"this-test.so\0")
    )
    return Driver(copy, cubin)


SOME = np.arange(64, dtype=np.float32)


def test_the_driver_runs_a_kernel(device):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    device.queue("copy", x, y)
    assert list(device.values(y, 64)) == list(SOME)


def test_use_after_free(device, tmp_path):
    x, y = device.memory(SOME), device.memory(SOME)
    device.call("cuMemFree_v2", x)
    device.memory(SOME)  # takes no freed place
    device.queue("copy", x, y)
    device.call("cuStreamSynchronize", device.stream, code=700)
    assert "kernel copy: address" in (tmp_path / "log").read_text()
    device.call("cuStreamSynchronize", device.stream, code=700)  # nothing runs on a device that has failed


@pytest.mark.parametrize(("name", "off", "code"), [("copy", 4, 700), ("copy", -4, 700), ("copy", 0, 0)])
def test_a_write_beside_an_allocation(device, tmp_path, name, off, code):
    x, y = device.memory(SOME), device.memory(SOME)
    device.queue(name, x, ctypes.c_uint64(y.value + off))
    device.call("cuStreamSynchronize", device.stream, code=code)


def test_a_read_of_the_page_before_an_allocation(device):
    x, y = device.memory(SOME), device.memory(SOME)
    device.queue("copy", ctypes.c_uint64(x.value - 4096), y)
    device.call("cuStreamSynchronize", device.stream, code=700)


def test_a_staging_buffer_that_is_overwritten_before_its_copy_ran(device):
    host = ctypes.c_void_p()
    device.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(SOME.nbytes), 0)
    staging = np.frombuffer((ctypes.c_char * SOME.nbytes).from_address(host.value), np.float32)
    there = device.memory(SOME * 0)
    staging[:] = SOME
    device.call("cuMemcpyHtoDAsync_v2", there, host, ctypes.c_size_t(SOME.nbytes), device.stream)
    staging[:] = 5  # too soon
    assert list(device.values(there, 64)) == [5] * 64


def test_what_was_queued_runs_when_it_is_waited_for_and_not_before(device):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    found = np.full(64, -1, np.float32)
    device.queue("copy", x, y)
    to = found.ctypes.data_as(ctypes.c_void_p)
    device.call("cuMemcpyDtoHAsync_v2", to, y, ctypes.c_size_t(found.nbytes), device.stream)
    assert set(found) == {-1}
    device.call("cuStreamSynchronize", device.stream)
    assert list(found) == list(SOME)


def test_a_thread_without_a_context(device):
    """Nothing but a context that was made current in the same thread will do."""
    x, y = device.memory(SOME), device.memory(SOME * 0)
    found = []

    def elsewhere():
        for act in (
            lambda: device.queue("copy", x, y),
            lambda: device.values(y, 64),
            lambda: device.call("cuMemFree_v2", x),
        ):
            with pytest.raises(AssertionError, match="cu"):
                act()
        device.call("cuStreamSynchronize", device.stream, code=201)
        device.call("cuCtxSetCurrent", device.context)
        device.queue("copy", x, y)
        found.extend(device.values(y, 64))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == list(SOME)


def test_a_context_that_was_released(device):
    device.call("cuDevicePrimaryCtxRelease_v2", 0)
    device.call("cuCtxSynchronize", code=709)


@pytest.mark.parametrize(("mode", "code"), [(0, 900), (1, 900), (2, 0)])
def test_a_kernel_that_is_launched_first_in_a_capture(device, mode, code):
    function, graph = ctypes.c_void_p(), ctypes.c_void_p()
    call, step = abi.CCall(), abi.CStep()
    parameters = (ctypes.c_void_p * 2)(ctypes.addressof(call), ctypes.addressof(step))
    device.call("cuModuleGetFunction", ctypes.byref(function), device.module, b"copy")
    device.call("cuStreamBeginCapture_v2", device.stream, mode)
    device.call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, device.stream, parameters, None, code=code)
    device.call("cuStreamEndCapture", device.stream, ctypes.byref(graph))
    device.call("cuGraphDestroy", graph)
