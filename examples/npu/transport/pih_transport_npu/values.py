"""Values in host memory: as bytes of the right length, and their sums over ranks."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from pih_runtime.contracts import Memory
from pih_runtime.errors import WorkerError
from pih_runtime.plan import DTYPE_BYTES

_WHERE = "transport/npu"
_MASK = 0xFFFFFFFF


def of(memory: Memory, count: int, dtype: str) -> memoryview:
    """The first `count` values as bytes; WorkerError where they are not there."""
    if dtype not in DTYPE_BYTES:
        raise WorkerError(f"no collective of {dtype!r}; there are {', '.join(DTYPE_BYTES)}", where=_WHERE)
    if isinstance(memory, int):
        raise WorkerError("an address: ranks exchange host memory here", where=_WHERE)
    wanted, raw = count * DTYPE_BYTES[dtype], memory.cast("B")
    if count < 0 or len(raw) < wanted:
        raise WorkerError(f"{count} values of {dtype} in {len(raw)} bytes", where=_WHERE)
    return raw[:wanted]


def adds(dtype: str) -> None:
    """WorkerError for what has no sums."""
    if dtype not in _SUMS:
        raise WorkerError(f"no sum of {dtype!r}; there are {', '.join(_SUMS)}", where=_WHERE)


def sums(parts: Sequence[bytes], dtype: str) -> bytes:
    """Each value's sum in order of rank, rounded to the type at the end: every rank gets the same bits."""
    return _SUMS[dtype](parts)


def _f32(parts: Sequence[bytes]) -> bytes:
    return array("f", [sum(column) for column in zip(*(array("f", part) for part in parts), strict=True)]).tobytes()


def _f16(parts: Sequence[bytes]) -> bytes:
    columns = zip(*(struct.unpack(f"<{len(part) // 2}e", part) for part in parts), strict=True)
    return struct.pack(f"<{len(parts[0]) // 2}e", *map(sum, columns))


def _bf16(parts: Sequence[bytes]) -> bytes:
    wide = [array("f", array("I", [half << 16 for half in array("H", part)]).tobytes()) for part in parts]
    bits = array("I", array("f", [sum(column) for column in zip(*wide, strict=True)]).tobytes())
    return array("H", [bit + 0x7FFF + (bit >> 16 & 1) >> 16 & 0xFFFF for bit in bits]).tobytes()


def _i32(parts: Sequence[bytes]) -> bytes:
    columns = zip(*(array("I", part) for part in parts), strict=True)
    return array("I", [sum(column) & _MASK for column in columns]).tobytes()


_SUMS = {"f32": _f32, "bf16": _bf16, "f16": _f16, "i32": _i32}
