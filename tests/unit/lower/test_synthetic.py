"""Seeded weights: pinned bytes, the same in whatever pieces, of the right size and spread."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps.lower.checkpoint import Tensor
from pih_steps.lower.synthetic import checkpoint_of

TENSORS = {
    "matrix": Tensor("bf16", (600, 700)),
    "other": Tensor("bf16", (600, 700)),
    "wide": Tensor("f32", (600, 700)),
    "norm": Tensor("bf16", (70000,)),
}


def made(seed=0):
    return checkpoint_of("synthetic", {}, TENSORS, seed)


def as_float(name):
    rows = 1 if name == "norm" else 600
    data = made().read(name, 0, rows)
    return (
        np.frombuffer(data, np.float32)
        if name == "wide"
        else (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    )


def test_bytes_are_pinned():
    """They are part of locks: a change of the generator must not pass unnoticed."""
    digest = hashlib.sha256(b"".join(made().read(name, 0, 1 if name == "norm" else 600) for name in TENSORS))
    assert digest.hexdigest() == "a1fcb701f59d83c25f75c95ddfec69c74d3f34db6893f044c08b3430af383fac"


@given(st.integers(0, 600), st.integers(0, 600))
def test_any_piece_can_be_made_alone(a, b):
    start, stop = sorted((a, b))
    whole = made().read("matrix", 0, 600)
    assert made().read("matrix", start, stop) == whole[start * 1400 : stop * 1400]


def test_matrices_are_about_normal_and_vectors_about_one():
    for name, mean, deviation in (("matrix", 0, 0.02), ("wide", 0, 0.02), ("norm", 1, 0.1)):
        values = as_float(name)
        assert abs(values.mean() - mean) < deviation / 50
        assert abs(values.std() / deviation - 1) < 0.02
        assert abs(values - mean).max() > 3 * deviation


def test_seed_and_name_change_everything():
    assert made(0).read("matrix", 0, 1) != made(1).read("matrix", 0, 1)
    assert made().read("matrix", 0, 1) != made().read("other", 0, 1)
    assert abs(np.corrcoef(as_float("matrix"), as_float("other"))[0, 1]) < 0.01


def test_bf16_is_the_rounding_of_float32():
    tensors = {"same": Tensor("f32", (64, 64))}
    wide = np.frombuffer(checkpoint_of("", {}, tensors, 0).read("same", 0, 64), np.uint32)
    narrow = np.frombuffer(checkpoint_of("", {}, {"same": Tensor("bf16", (64, 64))}, 0).read("same", 0, 64), np.uint16)
    assert (((wide + 0x7FFF + (wide >> 16 & 1)) >> 16) == narrow).all()


def test_a_format_that_cannot_be_made_up_is_refused():
    with pytest.raises(BuildError, match="no synthetic values of q4_1 for tensor a"):
        checkpoint_of("synthetic", {}, {"a": Tensor("q4_1", (32, 32))}, 0)
