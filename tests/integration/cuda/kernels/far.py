"""Caches whose last pages lie past 4 GiB, where an offset in bytes, and one in values, needs more than 31 bits."""

from __future__ import annotations

import mmap

import numpy as np

from tests.integration.cuda.kernels import sizes
from tests.integration.cuda.kernels.layouts import Pages
from tests.integration.cuda.kernels.made import symbol
from tests.integration.cuda.kernels.rounding import LEAST, close, normal
from tests.integration.cuda.kernels.texts import Texts
from tests.integration.kernels.formats import bf16_round
from tests.support.launches import Placed, Step

FAR = 1 << 22  # pages of 1 KiB
MAP_NORESERVE = 0x4000  # of Linux on x86-64; Python 3.11 has no name for it


def attention(here):
    """Two texts, one page table that points past 4 GiB."""
    shape, starts, cache = sizes.LONG, [39, 19], _cache()
    some = Texts([40, 20], shape.heads, shape.kv_heads, shape.head_dim)
    near = some.cache().values
    cache[:, FAR : FAR + near.shape[1]] = near
    some.table[some.table < near.shape[1]] += FAR
    step, (wanted, size) = some.step(starts), some.wanted(starts)
    entries = here.entries(symbol("attention", **shape.constants), step.tokens)
    assert len(entries) == 2
    for launch in entries:
        operands = [some.queries(starts), Placed(cache), np.zeros(wanted.shape, np.float32)]
        close(here.run(launch, operands, step)[0][2], wanted, 2.0**-8 * size + LEAST)


def kv_write(here):
    """Three slots in pages past 4 GiB."""
    slots, cache = np.array([3, 40, 17]), _cache()
    k, v = (normal(seed, 3, 32) for seed in (1, 2))
    (launch,) = here.entries(symbol("kv_write", kv_heads=1, head_dim=32), 3)
    here.run(launch, [k, v, Placed(cache)], Step(3, slots=slots + FAR * 16))
    wanted = Pages(16, 1, 32)
    wanted.bits[:] = 0
    wanted.put(slots, *(bf16_round(side).reshape(3, 1, 32) for side in (k, v)))
    assert np.array_equal(cache[:, FAR:], wanted.bits)
    assert not cache[:, :16].any()


def _cache():
    """One layer of a cache, of a kv head of 32 columns, which is memory only where it is written: [2][page][1][512]."""
    pages = FAR + 16
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    return np.frombuffer(mmap.mmap(-1, 2 * pages * 1024, flags=flags), np.uint16).reshape(2, pages, 1, 512)
