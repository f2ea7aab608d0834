"""Numbers for the checks: made from seeds, laid inside wider rows, and compared as closely as rounding lets them."""

from __future__ import annotations

import numpy as np

from tests.integration.kernels.formats import bf16_round, bf16_value

FLOAT, BF16 = 2.0**-24, 2.0**-8
LEAST, MOST = 2.0**-126, float(np.finfo(np.float32).max)  # of float32's numbers of full precision


def rng(*seed):
    return np.random.default_rng(list(seed))


def normal(seed, *shape):
    return rng(seed, *shape).standard_normal(shape).astype(np.float32)


def bf16_normal(seed, *shape):
    return bf16_round(normal(seed, *shape))


def close(found, wanted, error):
    """found: float32 or bf16 bits; error: how far off each may be. What is not finite must be what is wanted."""
    found = (bf16_value(found) if found.dtype == np.uint16 else found).astype(np.float64)
    wanted = np.where(np.abs(wanted) > MOST, np.copysign(np.inf, wanted), wanted)
    finite = np.isfinite(wanted)
    assert np.array_equal(found[~finite], wanted[~finite], equal_nan=True), "not the same infinities and NaNs"
    off = np.abs(found[finite] - wanted[finite])
    allowed = np.broadcast_to(error, wanted.shape)[finite]
    assert (off <= allowed).all(), f"off by {(off - allowed).max()} more than rounding allows"


def wide(values, *, left=4, right=4, sentinel=-7):
    """Rows inside wider rows, and the slice that they are."""
    rows, columns = values.shape
    held = np.full((rows, left + columns + right), sentinel, values.dtype)
    held[:, left : left + columns] = values
    return held, slice(left, left + columns)


def view(held, columns, sentinel=-7):
    """The columns of a wider buffer; those beside them must be untouched."""
    beside = np.ones(held.shape[1], bool)
    beside[columns] = False
    assert (held[:, beside] == np.array(sentinel, held.dtype)).all(), "columns beside the view were written"
    return held[:, columns]


def same_rounded(rounded, found):
    """A fused quantize gives the very values of one that is not."""
    nan = np.isnan(found)
    assert np.array_equal(rounded[~nan], bf16_round(found)[~nan])
    assert np.isnan(bf16_value(rounded[nan])).all()
