"""Rotary frequencies: rounded as float32 arithmetic rounds them everywhere, whatever the processor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih_steps.lower import inv_freq

PINNED = {0: 1.0, 1: 0.6978305578231812, 2: 0.486967533826828, 16: 0.003162277862429619, 31: 1.4330126759887207e-05}


def test_the_first_powers_are_pinned():
    found = inv_freq(100000.0, 64)
    assert len(found) == 32
    assert {i: found[i] for i in PINNED} == PINNED


@given(st.floats(10, 1e7), st.sampled_from([16, 64, 128]))
def test_every_value_is_a_float32_close_to_the_power(theta, head_dim):
    found = np.array(inv_freq(theta, head_dim))
    assert (found.astype(np.float32) == found).all()
    exact = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    assert np.abs(found / exact - 1).max() < 2e-7


@pytest.mark.parametrize("theta", [1e4, 1e5, 1e6])
def test_torch_rounds_alike_but_for_the_last_bit_of_its_power(theta):
    torch = pytest.importorskip("torch")
    theirs = 1.0 / (theta ** (torch.arange(0, 128, 2, dtype=torch.int64).float() / 128))
    apart = np.array(inv_freq(theta, 128), np.float32).view(np.int32) - theirs.numpy().view(np.int32)
    assert np.abs(apart).max() <= 1
    assert np.count_nonzero(apart) <= 1
