"""The CUDA pack's layouts by their documented formulas, place by place, apart from the code that makes them."""

from __future__ import annotations

import numpy as np

PAGE = 16
STALE = 0x7FC1  # a bf16 NaN


def mma16(weight):
    """[N,K] -> [N/16][K/32][half 2][lane 32][8]: lane 4g+t of half h, value i: row g + 8 * bit 1 of i, column
    8t + 4h + 2 * bit 2 of i + bit 0 of i."""
    n, k = weight.shape
    made = np.empty((n // 16, k // 32, 2, 32, 8), weight.dtype)
    for half in range(2):
        for lane in range(32):
            for i in range(8):
                row, column = lane // 4 + (i >> 1 & 1) * 8, lane % 4 * 8 + half * 4 + (i >> 2) * 2 + (i & 1)
                made[:, :, half, lane, i] = weight[row::16, column::32]
    return made


def mma16_int8(weight, scales):
    """[N,K] int8, [N] float32 -> [N/16] of [K/32][lane 32][half 2][8], bytes with 128 added, and the rows' scales."""
    n, k = weight.shape
    tiles = mma16(weight).transpose(0, 1, 3, 2, 4).reshape(n // 16, k * 16)
    strips = [(tiles.astype(np.int16) + 128).astype(np.uint8), scales.astype("<f4").view(np.uint8).reshape(n // 16, 64)]
    return np.concatenate(strips, 1)


def v_places(head_dim):
    """[position][d] -> the place in a page's V block: an m16n8k16's B operand of n = d and k = position."""
    places = np.empty((PAGE, head_dim), np.int64)
    for position in range(PAGE):
        for d in range(head_dim):
            tile, column = d // 16, d % 16 // 8  # which pair of mma, and which of the two
            lane = d % 8 * 4 + position % 8 // 2  # 4g + t: g the column, t the pair of k
            places[position, d] = ((tile * 32 + lane) * 2 + column) * 4 + position // 8 * 2 + position % 2
    return places


class Pages:
    """One layer of a cache in numpy: [2][page][kv head][16 * D] bf16 bits, all stale at first."""

    def __init__(self, pages, kv_heads, head_dim):
        self.bits = np.full((2, pages, kv_heads, PAGE * head_dim), STALE, np.uint16)
        self._head_dim, self._places = head_dim, v_places(head_dim)

    def put(self, slots, k, v):
        """k, v: [T, kv heads, D] bf16 bits."""
        page, position = np.asarray(slots) // PAGE, np.asarray(slots) % PAGE
        d = np.arange(self._head_dim)
        heads = np.arange(k.shape[1])[None, :, None]
        at = page[:, None, None], heads
        self.bits[0][*at, (position[:, None] * self._head_dim + d)[:, None]] = k
        self.bits[1][*at, self._places[position][:, None]] = v
