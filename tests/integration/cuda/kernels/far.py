"""Caches whose last pages, and weights whose last rows, lie past 4 GiB: offsets there need more than 31 bits."""

from __future__ import annotations

import mmap

import numpy as np

from tests.integration.cuda.kernels import sizes
from tests.integration.cuda.kernels.layouts import Pages, mma16, mma16_int8
from tests.integration.cuda.kernels.made import symbol
from tests.integration.cuda.kernels.rounding import LEAST, bf16_normal, close, normal, rng
from tests.integration.cuda.kernels.texts import Texts
from tests.integration.kernels.formats import bf16_round, bf16_value
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


def linear(here):
    """The last rows of a weight in bf16, through every entry."""
    rows = bf16_normal(1, 64, sizes.FAR_K)
    _linear(here, "linear_bf16", _weight(mma16(rows).reshape(4, -1), sizes.FAR_BF16), bf16_value(rows))


def linear_int8(here):
    """The last rows of a weight in int8, and their scales."""
    rows, scales = _int8()
    _linear(here, "linear_int8", _weight(mma16_int8(rows, scales), sizes.FAR_INT8), rows * scales[:, None])


def embed(here):
    """The last rows of a table in bf16."""
    rows = bf16_normal(1, 64, sizes.FAR_K)
    _embed(here, "embed_bf16", _weight(mma16(rows).reshape(4, -1), sizes.FAR_BF16), bf16_value(rows))


def embed_int8(here):
    """The last rows of a table in int8."""
    rows, scales = _int8()
    table = _weight(mma16_int8(rows, scales), sizes.FAR_INT8)
    _embed(here, "embed_int8", table, rows.astype(np.float32) * scales[:, None])


def _linear(here, template, weight, rows):
    n = len(weight.values) * 16
    x, before = bf16_normal(2, 3, sizes.FAR_K), np.zeros((3, n), np.float32)
    exact_x, exact_w = bf16_value(x).astype(np.float64), rows.astype(np.float64)
    wanted, size = exact_x @ exact_w.T, np.abs(exact_x) @ np.abs(exact_w).T
    entries = here.entries(symbol(template, n=n, k=sizes.FAR_K, accumulate=0), 3)
    assert len(entries) == 3
    for launch in entries:
        some = range(launch.y - launch.y * 64 // n, launch.y)
        y = here.run(launch, [x, weight, before], Step(3), y=some)[0][2]
        close(y[:, -64:], wanted, 2.0**-20 * size)
        assert not y[:, :-64].any()


def _embed(here, template, table, rows):
    n = len(table.values) * 16
    places = np.array([0, 63, 17, 40])
    (launch,) = here.entries(symbol(template, n=n, k=sizes.FAR_K), 4)
    y = np.zeros((4, sizes.FAR_K), np.float32)
    found = here.run(launch, [table, y], Step(4, ids=places + n - 64))[0][1]
    assert np.array_equal(found, rows[places])


def _int8():
    return rng(1).integers(-127, 128, (64, sizes.FAR_K)).astype(np.int8), np.abs(normal(1, 64))


def _weight(last, n):
    """A weight of n rows, zeros but for the last 64, which are given as 4 strips: [strip][the layout's values]."""
    whole = _far(n // 16 * last[0].nbytes, last.dtype).reshape(n // 16, -1)
    assert whole[:-4].nbytes >= 1 << 32
    whole[-4:] = last
    return Placed(whole)


def _cache():
    """One layer of a cache, of a kv head of 32 columns: [2][page][1][512]."""
    pages = FAR + 16
    return _far(2 * pages * 1024, np.uint16).reshape(2, pages, 1, 512)


def _far(nbytes, dtype):
    """Zeros that are memory only where they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), dtype)
