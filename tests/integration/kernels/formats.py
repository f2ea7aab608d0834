"""Weight formats in numpy: packing as the layouts say, and the values they stand for."""

from __future__ import annotations

import numpy as np


def bf16_round(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def aligned(values):
    """A copy that starts on 64 bytes."""
    values = np.ascontiguousarray(values)
    memory = np.zeros(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    view = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


def f32(rng, n, k):
    weight = rng.standard_normal((n, k)).astype(np.float32)
    return aligned(weight), weight


def bf16(rng, n, k):
    bits = bf16_round(rng.standard_normal((n, k)).astype(np.float32))
    packed = bits.reshape(n, k // 32, 2, 16).transpose(0, 1, 3, 2)
    return aligned(packed.reshape(n, k)), bf16_value(bits)


def _tiles(values, n, k):
    """[N,K] -> [tile][block][row][column], rows padded with zeros."""
    padded = np.zeros(((n + 15) // 16 * 16, k), values.dtype)
    padded[:n] = values
    return padded.reshape(-1, 16, k // 32, 32).transpose(0, 2, 1, 3)


def q4_1(rng, n, k):
    nibbles = rng.integers(0, 16, (n, k), dtype=np.uint8)
    scale = (rng.random((n, k // 32)) * 0.1).astype(np.float16)
    minimum = (-rng.random((n, k // 32))).astype(np.float16)
    values = scale.astype(np.float32).repeat(32, 1) * nibbles + minimum.astype(np.float32).repeat(32, 1)
    tiles = _tiles(nibbles, n, k)
    joined = tiles[..., :16] | (tiles[..., 16:] << 4)
    vectors = joined.reshape(*joined.shape[:3], 4, 4).transpose(0, 1, 3, 2, 4)
    heads = [_tiles(part.repeat(32, 1), n, k)[..., 0] for part in (scale, minimum)]
    return aligned(_join([*heads, vectors])), values


def q8_0(rng, n, k):
    signed = rng.integers(-128, 128, (n, k)).astype(np.int8)
    scale = (rng.random((n, k // 32)) * 0.01).astype(np.float16)
    values = scale.astype(np.float32).repeat(32, 1) * signed
    tiles = _tiles(signed, n, k)
    vectors = tiles.reshape(*tiles.shape[:3], 8, 4).transpose(0, 1, 3, 2, 4)
    return aligned(_join([_tiles(scale.repeat(32, 1), n, k)[..., 0], vectors])), values


def _join(parts):
    blocks = [np.ascontiguousarray(part).reshape(*part.shape[:2], -1).view(np.uint8) for part in parts]
    return np.concatenate([block.reshape(*parts[0].shape[:2], -1) for block in blocks], axis=2).reshape(-1)


FORMATS = {"f32": f32, "bf16": bf16, "q4_1": q4_1, "q8_0": q8_0}


def i16g32_value(groups):
    """[T, G*72] uint8 -> [T, G*32] float64."""
    raw = groups.reshape(groups.shape[0], -1, 72)
    high, low = raw[..., :32].view(np.int8).astype(np.float64), raw[..., 32:64].view(np.int8).astype(np.float64)
    scale = np.ascontiguousarray(raw[..., 64:68]).view(np.float32).astype(np.float64)
    return ((254 * high + low) * scale).reshape(groups.shape[0], -1)
