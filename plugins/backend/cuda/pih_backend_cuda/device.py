"""The device that a lock is for: found, checked and held; memory on it, and on the host beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pih_backend_cuda.driver import Driver
from pih_runtime.errors import PihError, WorkerError, described

# CUdevice_attribute
_MAJOR, _MINOR = 75, 76
_OWN_STREAM = 1  # CU_STREAM_NON_BLOCKING
_BLOCKING_EVENT = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING


@dataclass(slots=True)
class Device:
    """A device with its context and a stream. cuda: the driver's version, as '13.0'. held: what is to be given back."""

    driver: Driver
    name: str
    cuda: str
    context: ctypes.c_void_p
    stream: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)
    held: list[Callable[[], None]] = field(default_factory=list)

    def use(self) -> None:
        """Make the context current in the calling thread."""
        self.driver("cuCtxSetCurrent", self.context)

    def memory(self, nbytes: int, purpose: str) -> int:
        """Zeroed memory of the device until `close`; WorkerError says what it was for."""
        address = ctypes.c_uint64()
        with _refused(purpose, nbytes):
            self.driver("cuMemAlloc_v2", ctypes.byref(address), max(nbytes, 1))
        self.hold("cuMemFree_v2", address)
        self.driver("cuMemsetD8_v2", address, 0, max(nbytes, 1))
        return address.value

    def host_memory(self, nbytes: int, purpose: str) -> int:
        """Page-locked memory of the host until `close`: copies of it run beside the kernels."""
        address = ctypes.c_void_p()
        with _refused(purpose, nbytes):
            self.driver("cuMemHostAlloc", ctypes.byref(address), nbytes, 0)
        self.hold("cuMemFreeHost", address)
        assert address.value is not None, "the driver said that it succeeded"
        return address.value

    def module(self, cubin: bytes) -> ctypes.c_void_p:
        """The cubin, loaded until `close`."""
        module = ctypes.c_void_p()
        self.driver("cuModuleLoadData", ctypes.byref(module), cubin)
        self.hold("cuModuleUnload", module)
        return module

    def event(self) -> ctypes.c_void_p:
        """An event to wait for without burning a CPU, until `close`."""
        event = ctypes.c_void_p()
        self.driver("cuEventCreate", ctypes.byref(event), _BLOCKING_EVENT)
        self.hold("cuEventDestroy_v2", event)
        return event

    def hold(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver at the end, in reverse order of such calls."""
        self.held.append(partial(self.driver, function, *arguments))

    def release(self) -> list[str]:
        """Give everything back, in reverse order; what was refused, each in its words once, keeps nothing else."""
        problems = []
        while self.held:
            try:
                self.held.pop()()
            except WorkerError as problem:
                problems.append(problem.what)
        return list(dict.fromkeys(problems))

    def close(self) -> None:
        """As `release`; WorkerError names all that was refused."""
        if problems := self.release():
            raise WorkerError("; ".join(problems), where="the CUDA driver")


@contextmanager
def released_on_failure(device: Device) -> Iterator[None]:
    """Where the block fails, give everything back, and let the first cause tell of what was refused, too."""
    try:
        yield
    except Exception as cause:
        lines = "".join(f"\n  while releasing: {problem}" for problem in device.release())
        if isinstance(cause, PihError):
            cause.what += lines
            raise
        raise WorkerError(f"{described(cause)}{lines}") from cause


def open_device(driver: Driver, sm: str, nbytes: int, cuda: int) -> Device:
    """The first visible device of this compute capability with so much free memory; WorkerError lists all and why not.

    cuda: the version that compiled the kernels, as the driver counts (13000). Visible: CUDA_VISIBLE_DEVICES.
    """
    has = _integer(driver, "cuDriverGetVersion")
    if has < cuda:
        raise WorkerError(
            f"the driver serves CUDA {_spelled(has)}, the kernels need {_spelled(cuda)}",
            fix="install a newer driver on the host",
        )
    refused: list[str] = []
    failed: WorkerError | None = None
    for ordinal in range(_integer(driver, "cuDeviceGetCount")):
        handle = ctypes.c_int()
        driver("cuDeviceGet", ctypes.byref(handle), ordinal)
        name = ctypes.create_string_buffer(128)
        driver("cuDeviceGetName", name, len(name), handle)
        title = name.value.decode(errors="replace")
        found = f"sm_{_attribute(driver, _MAJOR, handle)}{_attribute(driver, _MINOR, handle)}"
        if found != sm:
            refused.append(f"{title} is {found}")
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        try:
            device = _retained(driver, handle, title, _spelled(has))
            with released_on_failure(device):
                device.use()
                driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
                if free.value >= nbytes:
                    driver("cuStreamCreate", ctypes.byref(device.stream), _OWN_STREAM)
                    device.hold("cuStreamDestroy_v2", device.stream)
                    return device
        except WorkerError as problem:  # another may do: this one is held by another process, or lost
            refused.append(f"{title}: {problem.what}")
            failed = problem
            continue
        device.close()
        refused.append(f"{title} has {_mib(free.value)} free of {_mib(total.value)}")
    if failed is not None and len(refused) == 1:
        raise failed
    raise WorkerError(
        f"no device has {sm} and {_mib(nbytes)} free, as this bundle needs: {'; '.join(refused) or 'there is none'}",
        fix="run it where such a device is free, or lock the profile for the one that is here",
    )


def _retained(driver: Driver, handle: ctypes.c_int, name: str, cuda: str) -> Device:
    context = ctypes.c_void_p()
    driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    device = Device(driver, name, cuda, context)
    device.hold("cuDevicePrimaryCtxRelease_v2", handle)
    return device


@contextmanager
def _refused(purpose: str, nbytes: int) -> Iterator[None]:
    """Let the driver's error say what the memory was for."""
    try:
        yield
    except WorkerError as problem:
        problem.what = f"{purpose}: {nbytes} bytes refused: {problem.what}"
        raise


def _integer(driver: Driver, function: str) -> int:
    value = ctypes.c_int()
    driver(function, ctypes.byref(value))
    return value.value


def _attribute(driver: Driver, attribute: int, handle: ctypes.c_int) -> int:
    value = ctypes.c_int()
    driver("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
    return value.value


def _spelled(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f} MiB"
