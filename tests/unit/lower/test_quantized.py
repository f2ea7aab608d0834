"""Matrices of a bf16 checkpoint as int8: a scale a row, the nearest byte, the same bytes however they are read."""

from __future__ import annotations

import numpy as np
import pytest

from pih_runtime.errors import BuildError
from pih_runtime.plan import Weight
from pih_steps.lower.checkpoint import Checkpoint, Tensor
from pih_steps.lower.formats import row_bytes, tensor_bytes
from pih_steps.lower.pack import packed_chunks
from pih_steps.lower.quantized import stored_as
from pih_steps.lower.shares import share

VALUES = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
VALUES[2], VALUES[3], VALUES[4, 0], VALUES[5] = 0, 1e-39, -300, [127, -127, 0.5, 1.5, -2.5, 63.5, 1, 0]
MATRIX = (VALUES.view(np.uint32) >> 16).astype(np.uint16)  # any bf16 will do


def checkpoint(bits=MATRIX, **more):
    data = {"w": bits, "norm": bits[0]}

    def read(name, start, stop):
        return data[name].reshape(-1, bits.shape[1])[start:stop].tobytes()

    tensors = {"w": Tensor("bf16", bits.shape), "norm": Tensor("bf16", bits.shape[1:])} | more
    return Checkpoint("model", {}, tensors, read)


def rows(source, start=0, stop=6):
    raw = np.frombuffer(source.read("w", start, stop), np.uint8).reshape(stop - start, 12)
    return raw[:, :4].copy().view(np.float32)[:, 0], raw[:, 4:].view(np.int8)


def test_each_value_is_the_nearest_multiple_of_its_rows_scale():
    scales, found = rows(stored_as("int8", checkpoint()))
    exact = (MATRIX.astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(scales, np.abs(exact).max(1) / np.float32(127))
    assert np.abs(found[[0, 1, 4]].astype(np.int16)).max(1).tolist() == [127] * 3
    off = np.abs(found * scales[:, None].astype(np.float64) - exact)
    assert (off <= scales[:, None] * 0.5000001).all()
    assert scales[2] == 0
    assert not found[2].any()


def test_halves_go_to_the_even_one():
    _, found = rows(stored_as("int8", checkpoint()))
    assert found[5].tolist() == [127, -127, 0, 2, -2, 64, 1, 0]


def test_vectors_and_what_is_not_bf16_stay():
    source = checkpoint(other=Tensor("f32", (4, 4)))
    found = stored_as("int8", source)
    assert {name: tensor.format for name, tensor in found.tensors.items()} == {
        "w": "int8",
        "norm": "bf16",
        "other": "f32",
    }
    assert found.read("norm", 0, 1) == source.read("norm", 0, 1)


def test_pieces_give_the_bytes_of_the_whole():
    found = stored_as("int8", checkpoint())
    assert b"".join(found.read("w", at, at + 2) for at in (0, 2, 4)) == found.read("w", 0, 6)
    assert len(found.read("w", 0, 6)) == tensor_bytes("int8", (6, 8), "w") == 6 * row_bytes("int8", 8, "w")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_with_a_share_of_the_columns_has_the_whole_rows_scales(rank):
    source = stored_as("int8", checkpoint())
    weight = Weight("w", (6, 4), "int8", "rows", tensor_bytes("int8", (6, 4), "w"), ("w",), (), "columns")
    shared = share(weight, source, rank, 2)
    raw = np.frombuffer(b"".join(packed_chunks(weight, shared)), np.uint8).reshape(6, 8)
    scales, whole = rows(source)
    assert np.array_equal(raw[:, :4].copy().view(np.float32)[:, 0], scales)
    assert np.array_equal(raw[:, 4:].view(np.int8), whole[:, rank * 4 : rank * 4 + 4])


def test_stored_is_as_it_was():
    source = checkpoint()
    assert stored_as("stored", source) is source


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0])
def test_a_weight_that_is_not_finite_is_refused(bits):
    broken = MATRIX.copy()
    broken[3, 3] = bits
    with pytest.raises(BuildError, match="model: w: a weight is not finite"):
        stored_as("int8", checkpoint(broken)).read("w", 0, 6)


def test_a_checkpoint_without_bf16_matrices_is_refused():
    with pytest.raises(BuildError, match="no matrix of the checkpoint is bf16"):
        stored_as("int8", Checkpoint("model", {}, {"w": Tensor("q8_0", (32, 32))}, checkpoint().read))


def test_an_unknown_format_is_refused():
    with pytest.raises(BuildError, match="one of stored, int8"):
        stored_as("int4", checkpoint())
