"""The software GPU's driver does what its calls must, as late as it may: so what nobody waited for is not there."""

from __future__ import annotations

import ctypes
import hashlib
import struct
import threading

import numpy as np
import pytest

from tests.support import simgpu
from tests.support.launches import abi

SOME = np.arange(64, dtype=np.float32)
SIZE = ctypes.c_size_t(SOME.nbytes)
ALONE = 1  # CU_STREAM_NON_BLOCKING


def cubin_for(sm):
    """An ELF header for this device, whose table of sections is empty."""
    return struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 64, 64, sm << 8, 64, 0, 0, 64, 0, 0)


class Driver:
    """A libcuda.so.1 of its own, with one stream and the toys as the module of a made-up cubin."""

    def __init__(self, library, cubin):
        self.library = ctypes.CDLL(str(library))
        self.context, self.module = (ctypes.c_void_p() for _ in range(2))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuModuleLoadData", ctypes.byref(self.module), cubin)
        self.stream = self.another_stream(ALONE)

    def call(self, name, *arguments, code=0):
        assert getattr(self.library, name)(*arguments) == code, name

    def another_stream(self, flags):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), flags)
        return stream

    def event(self, stream=None):
        """One that was recorded in the stream just now."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuEventRecord", event, stream or self.stream)
        return event

    def memory(self, values):
        """A device's copy of a numpy array, which has arrived."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(values.nbytes))
        self.call("cuMemcpyHtoD_v2", address, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes))
        self.call("cuCtxSynchronize")
        return address

    def staging(self, values):
        """Page-locked memory of the host with these values: (its address, a numpy array on it)."""
        host = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(values.nbytes), 0)
        array = np.frombuffer((ctypes.c_char * values.nbytes).from_address(host.value), values.dtype)
        array[:] = values
        return host, array

    def queue(self, name, x, y, stream=None):
        function, call, step = ctypes.c_void_p(), abi.CCall(), abi.CStep()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        call.operand[0].data, call.operand[1].data = x.value, y.value
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(call), ctypes.addressof(step))
        self.call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, stream or self.stream, parameters, None)

    def coming(self, address, stream=None):
        """64 floats in page-locked memory that a queued copy brings."""
        to, found = self.staging(SOME * 0)
        self.call("cuMemcpyDtoHAsync_v2", to, address, SIZE, stream or self.stream)
        return found

    def values(self, address):
        found = self.coming(address)
        self.call("cuStreamSynchronize", self.stream)
        return list(found)


@pytest.fixture
def start(folder, toys, tmp_path, monkeypatch):
    """A function: a device's compute capability -> its driver. Once in a test."""

    def of(sm):
        for each in (86, 89, 90):
            (tmp_path / f"{hashlib.sha256(cubin_for(each)).hexdigest()}.so").symlink_to(toys)
        settings = simgpu.settings(tmp_path, log=tmp_path / "log", devices=f"sm_{sm}:24000000000")
        monkeypatch.setenv("PIH_SIMGPU", settings)
        return Driver(simgpu.apart(folder, tmp_path), cubin_for(sm))

    return of


@pytest.fixture
def device(start):
    return start(89)


@pytest.fixture
def log(tmp_path):
    """What the driver has said so far."""
    return lambda: (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""


def test_the_driver_runs_a_kernel(device):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    device.queue("copy", x, y)
    assert device.values(y) == list(SOME)


def test_use_after_free(device, log):
    x, y = device.memory(SOME), device.memory(SOME)
    device.call("cuMemFree_v2", x)
    device.memory(SOME)  # takes no freed place
    device.queue("copy", x, y)
    device.call("cuStreamSynchronize", device.stream, code=700)
    assert "kernel copy: address" in log()
    device.call("cuStreamSynchronize", device.stream, code=700)  # nothing runs on a device that has failed


@pytest.mark.parametrize(("name", "off", "code"), [("copy", 4, 700), ("copy", -4, 700), ("copy", 0, 0)])
def test_a_write_beside_an_allocation(device, name, off, code):
    x, y = device.memory(SOME), device.memory(SOME)
    device.queue(name, x, ctypes.c_uint64(y.value + off))
    device.call("cuStreamSynchronize", device.stream, code=code)


def test_a_read_of_the_page_before_an_allocation(device):
    x, y = device.memory(SOME), device.memory(SOME)
    device.queue("copy", ctypes.c_uint64(x.value - 4096), y)
    device.call("cuStreamSynchronize", device.stream, code=700)


def test_what_a_copy_reads_may_not_be_written_before_it_is_done(device, log):
    host, staging = device.staging(SOME)
    there = device.memory(SOME * 0)
    device.call("cuMemcpyHtoDAsync_v2", there, host, SIZE, device.stream)
    staging[:] = 5  # too soon
    device.call("cuStreamSynchronize", device.stream, code=719)
    assert log() == "simgpu: what a copy reads was written before the copy was done\n"


def test_what_was_queued_runs_when_it_is_waited_for_and_not_before(device):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    device.queue("copy", x, y)
    found = device.coming(y)
    assert np.isnan(found).all()
    device.call("cuStreamSynchronize", device.stream)
    assert list(found) == list(SOME)


def test_an_event_stands_for_what_came_before_it_alone(device):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    first = device.coming(x)
    device.queue("copy", x, y)
    event = device.event()
    later, elsewhere = device.coming(y), device.coming(x, device.another_stream(ALONE))
    device.call("cuEventSynchronize", event)
    assert list(first) == list(SOME)
    assert np.isnan([later, elsewhere]).all()
    device.call("cuEventRecord", event, device.stream)
    device.call("cuEventSynchronize", event)
    assert list(later) == list(SOME)
    assert np.isnan(elsewhere).all()


def test_a_stream_is_waited_for_alone_and_a_context_whole(device):
    x, other = device.memory(SOME), device.another_stream(ALONE)
    here, there = device.coming(x), device.coming(x, other)
    device.call("cuStreamSynchronize", device.stream)
    assert list(here) == list(SOME)
    assert np.isnan(there).all()
    device.call("cuStreamDestroy_v2", other)
    assert np.isnan(there).all()
    device.call("cuCtxSynchronize")
    assert list(there) == list(SOME)


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (ALONE, False)])
def test_the_default_stream_and_those_that_do_not_go_alone_wait_for_each_other(device, flags, waits):
    x, y, stream = device.memory(SOME), device.memory(SOME * 0), device.another_stream(flags)
    found = device.coming(x, stream)
    device.call("cuMemcpyDtoH_v2", device.staging(SOME)[0], x, SIZE)  # in the default stream
    assert list(found) == list(SOME) if waits else np.isnan(found).all()
    device.call("cuMemsetD8_v2", y, 0xFF, SIZE)  # there too
    found = device.coming(y, stream)
    device.call("cuStreamSynchronize", stream)
    assert np.isnan(found).all() if waits else not found.any()


def test_a_copy_from_pageable_memory_has_read_it_and_may_be_on_its_way(device):
    x, there = SOME.copy(), device.memory(SOME * 0)
    device.call("cuMemcpyHtoD_v2", there, x.ctypes.data_as(ctypes.c_void_p), SIZE)
    x[:] = 5
    assert device.values(there) == [0] * 64
    device.call("cuCtxSynchronize")
    assert device.values(there) == list(SOME)
    device.call("cuMemcpyHtoD_v2", there, device.staging(x)[0], SIZE)
    assert device.values(there) == [5] * 64


def test_a_copy_to_pageable_memory_has_arrived(device):
    """Or it would be written after Python has used it for something else."""
    x, y, found = device.memory(SOME), device.memory(SOME * 0), np.zeros_like(SOME)
    device.queue("copy", x, y)
    device.call("cuMemcpyDtoHAsync_v2", found.ctypes.data_as(ctypes.c_void_p), y, SIZE, device.stream)
    assert list(found) == list(SOME)


def test_a_queued_copy_from_pageable_memory_has_read_it(device):
    x, there = SOME.copy(), device.memory(SOME * 0)
    device.call("cuMemcpyHtoDAsync_v2", there, x.ctypes.data_as(ctypes.c_void_p), SIZE, device.stream)
    x[:] = 5
    assert device.values(there) == list(SOME)


def test_page_locked_memory_is_given_back_at_once_and_memory_of_the_device_when_all_is_done(device, log):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    device.queue("copy", x, y)
    found = device.coming(y)
    device.call("cuMemFree_v2", x)
    assert list(found) == list(SOME)
    host, _ = device.staging(SOME)
    device.call("cuMemcpyDtoHAsync_v2", host, y, SIZE, device.stream)
    device.call("cuMemFreeHost", host)
    device.call("cuStreamSynchronize", device.stream, code=700)
    assert log() == "simgpu: memory was given back before a copy of it was done\n"


def test_work_that_nobody_waits_for_is_done_when_the_context_ends(device, log):
    x, y = device.memory(SOME), device.memory(SOME * 0)
    device.queue("copy", x, y)
    device.call("cuModuleUnload", device.module)
    device.call("cuDevicePrimaryCtxRelease_v2", 0)
    ended = "simgpu: context released, 3 things not given back\n"  # two of memory, the stream
    assert log() == f"simgpu: kernel copy: its module was unloaded\n{ended}"


def test_a_graph_may_be_destroyed_before_its_launch_is_done(device):
    x, y, graph, executable = device.memory(SOME), device.memory(SOME * 0), ctypes.c_void_p(), ctypes.c_void_p()
    device.call("cuStreamBeginCapture_v2", device.stream, 2)
    device.queue("copy", x, y)
    device.call("cuStreamSynchronize", device.stream, code=900)
    device.call("cuStreamEndCapture", device.stream, ctypes.byref(graph))
    device.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
    device.call("cuGraphDestroy", graph)
    assert device.values(y) == [0] * 64
    device.call("cuGraphLaunch", executable, device.stream)
    device.call("cuGraphExecDestroy", executable)
    assert device.values(y) == list(SOME)


@pytest.mark.parametrize(("gpu", "cubin", "code"), [(89, 86, 0), (86, 89, 209), (90, 89, 209), (89, 90, 209)])
def test_a_cubin_runs_on_devices_of_its_major_from_its_minor_on(start, gpu, cubin, code):
    module = ctypes.c_void_p()
    start(gpu).call("cuModuleLoadData", ctypes.byref(module), cubin_for(cubin), code=code)


def test_a_thread_without_a_context(device):
    """Nothing but a context that was made current in the same thread will do."""
    x, y = device.memory(SOME), device.memory(SOME * 0)
    found = []

    def elsewhere():
        for act in (
            lambda: device.queue("copy", x, y),
            lambda: device.values(y),
            lambda: device.call("cuMemFree_v2", x),
        ):
            with pytest.raises(AssertionError, match="cu"):
                act()
        device.call("cuStreamSynchronize", device.stream, code=201)
        device.call("cuCtxSetCurrent", device.context)
        device.queue("copy", x, y)
        found.extend(device.values(y))

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
