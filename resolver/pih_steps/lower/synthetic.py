"""Seeded weights in a model's true shape, for tests and benchmarks: the same bytes on every machine.

A value is a function of seed, tensor name and index alone: a counter is hashed to 32 bits, the sum of
its four bytes is near normal (Irwin-Hall) and is looked up in a table of 1021 values, so that any piece
can be made alone, by integer operations only. Matrices are about N(0, 0.02), vectors about N(1, 0.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from pih_runtime.errors import BuildError
from pih_steps.lower.checkpoint import Checkpoint, Tensor
from pih_steps.lower.formats import matrix

Words = npt.NDArray[np.uint32]

_SUM_MEAN = 510  # of four bytes
_SUM_DEVIATION = 147.8
_PIECE = 1 << 16  # values at a time: stays in a core's cache


def checkpoint_of(where: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], seed: int) -> Checkpoint:
    """A checkpoint with these tensors and made-up values."""
    for name, tensor in tensors.items():
        if tensor.format not in ("f32", "bf16"):
            raise BuildError(f"no synthetic values of {tensor.format} for tensor {name}", where=where)

    def read(name: str, start: int, stop: int) -> bytes:
        tensor = tensors[name]
        columns = matrix(tensor.shape)[1]
        table = _table(tensor)
        key = np.frombuffer(sha256(f"{seed}:{name}".encode()).digest()[:8], "<u4")
        out = np.empty((stop - start) * columns, table.dtype)
        for at in range(0, len(out), _PIECE):
            piece = out[at : at + _PIECE]
            np.take(table, _sums(start * columns + at, len(piece), key), out=piece)
        return out.tobytes()

    return Checkpoint(where, config, tensors, read)


def _table(tensor: Tensor) -> npt.NDArray[Any]:
    """Value of each possible sum of four bytes, in the tensor's format."""
    deviation, mean = (0.02, 0.0) if len(tensor.shape) > 1 else (0.1, 1.0)
    values = (np.arange(4 * 255 + 1) - _SUM_MEAN) * (deviation / _SUM_DEVIATION) + mean
    words = values.astype("<f4")
    if tensor.format == "f32":
        return words
    bits = words.view("<u4")
    rounded: npt.NDArray[Any] = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16  # to nearest, ties to even
    return rounded.astype("<u2")


def _sums(first: int, count: int, key: Words) -> Words:
    """Sum of the four bytes of the hash of counters first..first+count."""
    word = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32)
    # Finalizer of MurmurHash3 (public domain, A. Appleby), keyed before and within.
    word += key[0]
    word ^= word >> 16
    word *= np.uint32(0x85EBCA6B)
    word ^= key[1]
    word ^= word >> 13
    word *= np.uint32(0xC2B2AE35)
    word ^= word >> 16
    pairs = (word & 0x00FF00FF) + ((word >> 8) & 0x00FF00FF)
    return (pairs & 0xFFFF) + (pairs >> 16)
