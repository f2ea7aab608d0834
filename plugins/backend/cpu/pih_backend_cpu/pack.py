"""The kernel pack through ctypes: mirrors of the structures in kernels/include/pih_kernel.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pih_runtime.errors import WorkerError

ABI = 1
MAX_OPERANDS = 4


class COperand(ctypes.Structure):
    """`struct pih_operand`."""

    _fields_ = (("data", c_void_p), ("stride", c_int64), ("columns", c_int64))


class CSampling(ctypes.Structure):
    """`struct pih_sampling`."""

    _fields_ = (
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("seed", c_uint64),
    )


class CStep(ctypes.Structure):
    """`struct pih_step`."""

    _fields_ = (
        ("tokens", c_int32),
        ("seqs", c_int32),
        ("wanted", c_int32),
        ("pages_per_seq", c_int32),
        ("ids", c_void_p),
        ("positions", c_void_p),
        ("seq_start", c_void_p),
        ("page_table", c_void_p),
        ("slots", c_void_p),
        ("rows", c_void_p),
        ("row_slots", c_void_p),
        ("sampling", POINTER(CSampling)),
        ("seq_of", c_void_p),
        ("sampled", c_void_p),
        ("scratch", c_void_p),
        ("scratch_floats", c_int64),
    )


class CCall(ctypes.Structure):
    """`struct pih_call`."""

    _fields_ = (
        ("kernel", c_void_p),
        ("wanted", c_int32),
        ("parts", c_int32),
        ("alone", c_int32),
        ("operand", COperand * MAX_OPERANDS),
    )


@dataclass(frozen=True, slots=True)
class Pack:
    """The pack's exports. The executor's functions leave the interpreter lock while they run."""

    library: ctypes.CDLL
    where: str
    isa: str
    team_bytes: int
    thread: Callable[[int, int], None]
    run: Callable[..., None]
    stop: Callable[[int], None]


def load_pack(path: Path) -> Pack:
    """Open a pack; raises WorkerError where it is not one, or of another ABI."""
    where = str(path)
    try:
        library = ctypes.CDLL(where)
        abi = _export(library, "pih_abi", c_int)()
        if abi != ABI:
            raise WorkerError(
                f"kernel pack ABI {abi}, this backend has {ABI}", where=where, fix="build the bundle again"
            )
        return Pack(
            library,
            where,
            _export(library, "pih_isa", c_char_p)().decode(),
            _export(library, "pih_team_bytes", c_int64)(),
            _export(library, "pih_thread", None, c_void_p, c_int),
            _export(library, "pih_run", None, c_void_p, c_int, POINTER(CCall), c_int, POINTER(CStep)),
            _export(library, "pih_stop", None, c_void_p),
        )
    except (OSError, AttributeError) as problem:
        raise WorkerError(f"not a kernel pack: {problem}", where=where, fix="build the bundle again") from problem


def symbol_address(pack: Pack, symbol: str) -> int:
    """Where a bound kernel lies; raises WorkerError where the pack lacks it."""
    try:
        address = ctypes.cast(getattr(pack.library, symbol), c_void_p).value
    except AttributeError:
        raise WorkerError(
            f"the kernel pack has no {symbol!r}, which the plan calls", where=pack.where, fix="build the bundle again"
        ) from None
    assert address is not None, "dlsym found it"
    return address


def _export(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function
