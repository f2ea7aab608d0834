"""The CUDA driver API through ctypes: the functions that are used, and its errors in words.

Signatures as in the CUDA Driver API reference; `_v2` names are what its header maps the plain ones to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

from pih_runtime.errors import WorkerError

LIBRARY = "libcuda.so.1"
_P = POINTER
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_P(c_int),),
    "cuDeviceGetCount": (_P(c_int),),
    "cuDeviceGet": (_P(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_P(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_P(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_P(c_size_t), _P(c_size_t)),
    "cuMemAlloc_v2": (_P(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (_P(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
    "cuModuleLoadData": (_P(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_P(c_void_p), c_void_p, c_char_p),
    "cuStreamCreate": (_P(c_void_p), c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuEventCreate": (_P(c_void_p), c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, _P(c_void_p), _P(c_void_p)),
}
_DEFECT = "restart the worker; if it happens again it is a defect of a kernel: please report it"
# What an operator can do about an error; others have their name and the driver's sentence alone.
_ADVICE = {
    "CUDA_ERROR_NO_DEVICE": "give the container the GPU: --gpus all, --device nvidia.com/gpu=all, or a Kubernetes "
    "resource nvidia.com/gpu",
    "CUDA_ERROR_OUT_OF_MEMORY": "end what else uses the device, or lock the profile with smaller limits",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart the host, so that the driver's two halves are of one version",
    "CUDA_ERROR_SYSTEM_NOT_READY": "see whether the driver and, on NVSwitch systems, the fabric manager run",
    "CUDA_ERROR_ILLEGAL_ADDRESS": _DEFECT,
    "CUDA_ERROR_LAUNCH_FAILED": _DEFECT,
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the device's memory is damaged: take it out of service",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "another process holds the device exclusively: end it, or choose another device",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "lock the profile for this device's compute capability: device.sm",
    "CUDA_ERROR_INVALID_IMAGE": "build the bundle again",
}


class Driver:
    """Calls by name: `driver("cuInit", 0)`; a result other than CUDA_SUCCESS is a WorkerError."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._functions: dict[str, Callable[..., int]] = {}
        self.declare(_FUNCTIONS)

    def declare(self, functions: Mapping[str, tuple[Any, ...]]) -> None:
        """Functions that are about to be called, with the types of their arguments; WorkerError if it has them not."""
        for name, arguments in functions.items():
            try:
                function = getattr(self._library, name)
            except AttributeError as problem:
                raise WorkerError(
                    f"{LIBRARY} is too old, or not NVIDIA's driver: {problem}", fix="install a newer driver on the host"
                ) from problem
            function.argtypes, function.restype = arguments, c_int
            self._functions[name] = function

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; WorkerError names it, the error and what to do."""
        code = self._functions[name](*arguments)
        if code:
            word, sentence = self._described(code)
            raise WorkerError(
                f"{name}: {word}" + (f" ({sentence})" if sentence else ""),
                where="the CUDA driver",
                fix=_ADVICE.get(word, "see the host's kernel log for lines of NVRM"),
            )

    def _described(self, code: int) -> tuple[str, str]:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            known = getattr(self._library, name)(c_int(code), ctypes.byref(text)) == 0 and text.value
            texts.append(text.value.decode() if known and text.value else "")
        return texts[0] or f"CUDA error {code}", texts[1]


def load_driver() -> Driver:
    """Open the driver; raises WorkerError where the host has none, or one that is too old to have what is called."""
    try:
        driver = Driver(ctypes.CDLL(LIBRARY))
    except OSError as problem:
        raise WorkerError(
            f"no NVIDIA driver: {problem}",
            fix="install it, and give the container the GPU: --gpus all, --device nvidia.com/gpu=all, or a Kubernetes "
            "resource nvidia.com/gpu",
        ) from problem
    driver("cuInit", 0)
    return driver
