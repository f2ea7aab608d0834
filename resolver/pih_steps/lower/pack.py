"""Packing: a weight's rows as its checkpoint stores them → the bytes that a kernel reads.

Integer and copying operations only, a few thousand rows at a time: the same bytes on every machine.
Layouts, N x K being the weight's shape:
  rows    as the format stores it. A bf16 or f16 vector may be widened to f32, which is exact.
  tile16  blocks of 16 rows x 32 columns, ordered [N/16][K/32].
          q4_1: 16 f16 scales, 16 f16 minima, then 4 vectors of 64 bytes; byte r*4+j of vector v holds, of row r,
          column 4v+j in its low half and column 16+4v+j in its high half. value = scale * q + minimum
          q8_0: 16 f16 scales, then 8 vectors of 64 bytes; byte r*4+j of vector v is column 4v+j of row r.
          value = scale * q, q a signed byte
  mma16   bf16: tiles of 16 rows x 32 columns, ordered [N/16][K/32]; a tile is [half 2][lane 32][8 values]. Lane 4g+t
          of half h holds columns 8t+4h and 8t+4h+1 of row g, the same of row g+8, then the next two columns of both:
          what one m16n8k16 instruction of a GPU takes from a lane
          int8: for each 16 rows, their tiles as [lane 32][half 2][8 values], each value's byte with 128 added; then
          their 16 f32 scales. value = scale * (byte - 128)
  pair16  bf16: in each 32 columns of a row, 32-bit word i holds column i (low half) and column 16+i (high half)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pih_runtime.errors import BuildError
from pih_runtime.plan import Weight
from pih_steps.lower.checkpoint import Checkpoint, tensor_row_bytes
from pih_steps.lower.finite import check_finite
from pih_steps.lower.formats import matrix

Bytes = npt.NDArray[np.uint8]

_PIECE = 8 << 20  # bytes to hold at a time
_FIX = "take the checkpoint that was locked, or lock again: pih lock"


def packed_chunks(weight: Weight, checkpoint: Checkpoint) -> Iterator[bytes]:
    """The packed bytes of a weight, in pieces; `check_sources` comes first.

    Raises BuildError for a value that is no finite number.
    """
    if weight.values:
        yield np.asarray(weight.values, "<f4").tobytes()
    for source in weight.sources:
        tensor = checkpoint.tensors[source]
        rows, columns = matrix(tensor.shape)
        pack = _packer(weight, tensor.format, columns)
        stride = tensor_row_bytes(checkpoint, source)
        step = max(16, _PIECE // stride // 16 * 16)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            raw = np.frombuffer(checkpoint.read(source, start, stop), np.uint8).reshape(stop - start, stride)
            check_finite(raw, tensor.format, source, checkpoint.where)
            yield pack(raw).tobytes()


def check_sources(weight: Weight, checkpoint: Checkpoint) -> None:
    """Raise BuildError unless the checkpoint holds a weight's sources in the form that the plan packs."""
    rows = 0
    for source in weight.sources:
        tensor = checkpoint.tensors.get(source)
        if tensor is None:
            raise BuildError(f"tensor {source} is missing", where=checkpoint.where, fix=_FIX)
        rows += tensor.shape[0]
        widened = (weight.format, weight.layout) == ("f32", "rows") and tensor.format in _WIDEN
        if tensor.shape[1:] != weight.shape[1:] or not (widened or tensor.format == weight.format):
            raise BuildError(
                f"tensor {source} is {tensor.format} {list(tensor.shape)}, for {weight.name} the plan expects "
                f"{weight.format} {list(weight.shape)}",
                where=checkpoint.where,
                fix=_FIX,
            )
    if weight.sources and rows != weight.shape[0]:
        raise BuildError(
            f"{' + '.join(weight.sources)} have {rows} rows, the plan expects {weight.shape[0]}",
            where=checkpoint.where,
            fix=_FIX,
        )


def _packer(weight: Weight, stored: str, columns: int) -> Callable[[Bytes], npt.NDArray[Any]]:
    """The function for this stored format → format and layout."""
    if weight.layout == "rows":
        return _WIDEN[stored] if stored != weight.format else _as_stored
    pack = _PACKERS.get((weight.format, weight.layout))
    if pack is None:
        raise BuildError(
            f"no packing of {weight.format} into the layout {weight.layout!r}",
            where=weight.name,
            fix="choose a kernel pack whose layouts are known: "
            + ", ".join(f"{format_} {layout}" for format_, layout in sorted(_PACKERS)),
        )
    return lambda raw: pack(raw, columns)


def _as_stored(raw: Bytes) -> Bytes:
    return raw


def _widen_bf16(raw: Bytes) -> npt.NDArray[Any]:
    return raw.view("<u2").astype("<u4") << 16


def _widen_f16(raw: Bytes) -> npt.NDArray[Any]:
    return raw.view("<f2").astype("<f4")


def _tile16_q4_1(raw: Bytes, columns: int) -> Bytes:
    rows, blocks = len(raw), columns // 32
    tiles = raw.reshape(rows // 16, 16, blocks, 20).transpose(0, 2, 1, 3)  # [N/16][K/32][16 rows][20]
    out = np.empty((rows // 16, blocks, 320), np.uint8)
    out[:, :, :32] = tiles[..., 0:2].reshape(rows // 16, blocks, 32)
    out[:, :, 32:64] = tiles[..., 2:4].reshape(rows // 16, blocks, 32)
    # A stored byte j already pairs columns j and 16+j; only its place changes: [row][v][j] → [v][row][j].
    nibbles = tiles[..., 4:].reshape(rows // 16, blocks, 16, 4, 4).transpose(0, 1, 3, 2, 4)
    out[:, :, 64:] = nibbles.reshape(rows // 16, blocks, 256)
    return out


def _tile16_q8_0(raw: Bytes, columns: int) -> Bytes:
    rows, blocks = len(raw), columns // 32
    tiles = raw.reshape(rows // 16, 16, blocks, 34).transpose(0, 2, 1, 3)
    out = np.empty((rows // 16, blocks, 544), np.uint8)
    out[:, :, :32] = tiles[..., 0:2].reshape(rows // 16, blocks, 32)
    values = tiles[..., 2:].reshape(rows // 16, blocks, 16, 8, 4).transpose(0, 1, 3, 2, 4)
    out[:, :, 32:] = values.reshape(rows // 16, blocks, 512)
    return out


def _pair16_bf16(raw: Bytes, columns: int) -> npt.NDArray[Any]:
    halves = raw.view("<u2").reshape(len(raw), columns // 32, 2, 16)
    return np.ascontiguousarray(halves.transpose(0, 1, 3, 2))


def _mma16_bf16(raw: Bytes, columns: int) -> npt.NDArray[Any]:
    # [N/16][row/8][g][K/32][t][half][pair][column] → [N/16][K/32][half][g][t][pair][row/8][column]
    tiles = raw.view("<u2").reshape(len(raw) // 16, 2, 8, columns // 32, 4, 2, 2, 2)
    return np.ascontiguousarray(tiles.transpose(0, 3, 5, 2, 4, 6, 1, 7))


def _mma16_int8(raw: Bytes, columns: int) -> Bytes:
    strips, size = len(raw) // 16, columns * 16
    # [N/16][row/8][g][K/32][t][half][pair][column] → [N/16][K/32][g][t][half][pair][row/8][column]
    tiles = (raw[:, 4:] ^ 128).reshape(strips, 2, 8, columns // 32, 4, 2, 2, 2).transpose(0, 3, 2, 4, 5, 6, 1, 7)
    out = np.empty((strips, size + 64), np.uint8)
    out[:, :size] = tiles.reshape(strips, size)
    out[:, size:] = raw[:, :4].reshape(strips, 64)
    return out


_WIDEN: dict[str, Callable[[Bytes], npt.NDArray[Any]]] = {"bf16": _widen_bf16, "f16": _widen_f16}
_PACKERS: dict[tuple[str, str], Callable[[Bytes, int], npt.NDArray[Any]]] = {
    ("q4_1", "tile16"): _tile16_q4_1,
    ("q8_0", "tile16"): _tile16_q8_0,
    ("bf16", "mma16"): _mma16_bf16,
    ("int8", "mma16"): _mma16_int8,
    ("bf16", "pair16"): _pair16_bf16,
}
