"""The kernel pack: one cubin, and pack.json, which says how its entries are launched (written by the step `cubin`).

The ctypes structures mirror those of kernels/cuda/pack.cuh.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from ctypes import c_float, c_int32, c_int64, c_uint64
from dataclasses import dataclass
from pathlib import Path

from pih_runtime.errors import WorkerError

ABI = 1
MAX_OPERANDS = 12
_NUMBERS = ("most_rows", "threads", "rows_per_block", "blocks_per_seq", "y", "z", "scratch")


class COperand(ctypes.Structure):
    """`struct pih_operand`; addresses are the device's."""

    _fields_ = (("data", c_uint64), ("stride", c_int64), ("columns", c_int64))


class CCall(ctypes.Structure):
    """`struct pih_call`."""

    _fields_ = (("operand", COperand * MAX_OPERANDS), ("axis", c_int32))


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
    """`struct pih_step`; addresses are the device's."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "counts",
            "ids",
            "positions",
            "seq_start",
            "page_table",
            "slots",
            "rows",
            "row_slots",
            "sampling",
            "sampled",
            "scratch",
        )
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """How an entry is launched: `struct pih_launch`, with the entry's name."""

    entry: str
    most_rows: int
    threads: int
    rows_per_block: int
    blocks_per_seq: int
    y: int
    z: int
    scratch: int


@dataclass(frozen=True, slots=True)
class Pack:
    """sm: as 'sm_89'. cuda: the compiler's version as drivers count it. launches: by symbol, in order of most_rows."""

    sm: str
    cuda: int
    cubin: bytes
    launches: Mapping[str, tuple[Launch, ...]]


def read_pack(folder: Path) -> Pack:
    """Read a pack; raises WorkerError where it is not one, or of another ABI."""
    try:
        data = json.loads((folder / "pack.json").read_bytes().decode())
        if data["abi"] != ABI:
            raise WorkerError(f"kernel pack ABI {data['abi']}, this backend has {ABI}", fix="build the bundle again")
        launches = {
            symbol: tuple(Launch(item["entry"], *(_number(item[name]) for name in _NUMBERS)) for item in items)
            for symbol, items in data["symbols"].items()
        }
        return Pack(str(data["sm"]), int(data["cuda"]), (folder / "pack.cubin").read_bytes(), launches)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise WorkerError(
            f"not a kernel pack: {problem!r}", where=str(folder), fix="build the bundle again"
        ) from problem


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r} is no count")
    return value
