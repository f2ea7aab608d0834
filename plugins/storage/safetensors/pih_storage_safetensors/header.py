"""The header of a safetensors file: an untrusted JSON table of tensors, checked in full.

Layout: 8 bytes little-endian header length N, N bytes of JSON (padded with spaces), then the data.
Offsets count from the start of the data; tensors lie back to back and fill it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pih_runtime.numbers import whole

LONGEST = 100_000_000  # the format's own bound
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """Bytes start..end of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def extent(data: memoryview) -> int:
    """Bytes of the header, its own length included; ValueError where they do not fit the file."""
    if len(data) < 8:
        raise ValueError(f"{len(data)} bytes cannot hold a header")
    (length,) = struct.unpack_from("<Q", data)
    if not 2 <= length <= min(LONGEST, len(data) - 8):
        raise ValueError(f"header of {length} bytes in a file of {len(data)}")
    return 8 + int(length)


def parse(data: memoryview) -> dict[str, Tensor]:
    """Tensors by name; ValueError says what is wrong with the file."""
    base = extent(data)
    try:
        table = json.loads(bytes(data[8:base]).decode(), object_pairs_hook=_unique, parse_int=whole)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"header is not JSON: {problem}") from problem
    if not isinstance(table, dict):
        raise ValueError("header is not a JSON object")  # noqa: TRY004 - the file's value is wrong, not a caller's type
    tensors = [_tensor(name, item, base) for name, item in table.items() if name != "__metadata__"]
    _check_cover(tensors, base, len(data))
    return {tensor.name: tensor for tensor in tensors}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("header names a key twice")
    return table


def _tensor(name: str, item: Any, base: int) -> Tensor:
    if not isinstance(item, Mapping) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} is not dtype, shape and data_offsets")
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if dtype not in DTYPE_BITS:
        raise ValueError(f"tensor {name!r} has unknown dtype {dtype!r}")
    if not (_sizes(shape) and _sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
        raise ValueError(f"tensor {name!r} has shape {shape!r}, offsets {offsets!r}")
    if math.prod(shape) * DTYPE_BITS[dtype] // 8 != offsets[1] - offsets[0]:
        raise ValueError(f"tensor {name!r}: {dtype} of shape {shape} does not fill offsets {offsets}")
    return Tensor(name, dtype, tuple(shape), base + offsets[0], base + offsets[1])


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_cover(tensors: list[Tensor], base: int, size: int) -> None:
    """Back to back from the header to the end of the file: no overlap, no hole, nothing past the end."""
    end = base
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            raise ValueError(f"tensor {tensor.name!r} starts at byte {tensor.start}, the one before ends at {end}")
        end = tensor.end
    if end != size:
        raise ValueError(f"tensors end at byte {end} of a file of {size}")
