"""libnccl.so.2 through ctypes: the functions that are used, and its errors in words. Signatures as in its nccl.h."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from pih_runtime.errors import WorkerError

WHERE = "transport/nccl"
# ncclDataType_t
DTYPES = {"u8": 1, "i32": 2, "f16": 6, "f32": 7, "bf16": 9}
SUM = 0  # ncclRedOp_t
# Ranks are threads of one process: they find each other by the loopback interface, and no network has their values.
_SURROUNDINGS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`: what the ranks of a group have in common."""

    _fields_ = (("internal", ctypes.c_char * 128),)


_P = POINTER
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (_P(c_int),),
    "ncclGetUniqueId": (_P(UniqueId),),
    "ncclCommInitRank": (_P(c_void_p), c_int, UniqueId, c_int),
    "ncclCommDestroy": (c_void_p,),
    "ncclCommAbort": (c_void_p,),
    "ncclAllReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclAllGather": (c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
    "ncclReduceScatter": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclBroadcast": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
}


class Library:
    """Calls by name: `library("ncclGetVersion", …)`; a result other than ncclSuccess is a WorkerError."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions: dict[str, Callable[..., int]] = {}
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
            self._functions[name] = function
        self._words = library.ncclGetErrorString
        self._words.argtypes, self._words.restype = (c_int,), ctypes.c_char_p
        number = c_int()
        self("ncclGetVersion", ctypes.byref(number))
        self.version = f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; WorkerError names it and the error."""
        code = self._functions[name](*arguments)
        if code:
            raise WorkerError(
                f"{name}: {self._words(code).decode(errors='replace')}",
                where=WHERE,
                fix="start the worker with NCCL_DEBUG=INFO in its environment to have NCCL's own words",
            )


def load(path: Path) -> Library:
    """Open the library; WorkerError where it cannot be."""
    for name, value in _SURROUNDINGS.items():
        os.environ.setdefault(name, value)
    try:
        return Library(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as problem:
        raise WorkerError(f"NCCL cannot be opened: {problem}", where=WHERE, fix="build the bundle again") from problem
