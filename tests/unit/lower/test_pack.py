"""Packed layouts: every value is where the layout says, and the pieces that it is packed in do not matter."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from pih_runtime.errors import BuildError
from pih_runtime.plan import Weight
from pih_steps.lower import pack
from pih_steps.lower.checkpoint import Checkpoint, Tensor
from pih_steps.lower.finite import check_finite
from pih_steps.lower.formats import BLOCKS, head_bytes, row_bytes, tensor_bytes

KINDS = gguf.GGMLQuantizationType


def checkpoint(**tensors):
    """name → (format, array of stored rows, columns)"""

    def read(name, start, stop):
        return tensors[name][1][start:stop].tobytes()

    table = {name: Tensor(format_, (len(raw), columns)) for name, (format_, raw, columns) in tensors.items()}
    return Checkpoint("model", {}, table, read)


def packed(weight, source):
    pack.check_sources(weight, source)
    return np.frombuffer(b"".join(pack.packed_chunks(weight, source)), np.uint8)


def weight(format_, layout, shape, *sources, values=()):
    return Weight("w", shape, format_, layout, tensor_bytes(format_, shape, "w"), sources, values)


def quantized(kind, rows=32, columns=96):
    values = np.random.default_rng(5).standard_normal((rows, columns)).astype(np.float32)
    raw = gguf.quants.quantize(values, kind)
    return raw, gguf.quants.dequantize(raw, kind)


def test_q4_1_tile16_holds_every_value_in_its_place():
    raw, values = quantized(KINDS.Q4_1)
    data = packed(weight("q4_1", "tile16", (32, 96), "a"), checkpoint(a=("q4_1", raw, 96)))
    for n in range(32):
        for k in range(96):
            block = data[(n // 16 * 3 + k // 32) * 320 :][:320]
            scale, minimum = block[:32].view(np.float16)[n % 16], block[32:64].view(np.float16)[n % 16]
            low = k % 32 < 16
            vector, j = divmod(k % 16, 4)
            byte = block[64 + vector * 64 + n % 16 * 4 + j]
            q = byte & 15 if low else byte >> 4
            assert np.float32(scale) * np.float32(q) + np.float32(minimum) == values[n, k]


def test_q8_0_tile16_holds_every_value_in_its_place():
    raw, values = quantized(KINDS.Q8_0)
    data = packed(weight("q8_0", "tile16", (32, 96), "a"), checkpoint(a=("q8_0", raw, 96)))
    for n in range(32):
        for k in range(96):
            block = data[(n // 16 * 3 + k // 32) * 544 :][:544]
            vector, j = divmod(k % 32, 4)
            q = block[32 + vector * 64 + n % 16 * 4 + j].view(np.int8)
            assert np.float32(block[:32].view(np.float16)[n % 16]) * np.float32(q) == values[n, k]


def test_bf16_pair16_holds_every_value_in_its_place():
    words = np.arange(4 * 64, dtype=np.uint16).reshape(4, 64)
    data = (
        packed(weight("bf16", "pair16", (4, 64), "a"), checkpoint(a=("bf16", words, 64))).view(np.uint32).reshape(4, 32)
    )
    for n in range(4):
        for k in range(64):
            word = data[n, k // 32 * 16 + k % 16]
            assert (word >> 16 if k % 32 >= 16 else word & 0xFFFF) == words[n, k]


@pytest.mark.parametrize("format_", ["f32", "q4_1"])
def test_rows_are_as_stored(format_):
    raw = np.random.default_rng(0).integers(0, 0x78, (8, row_bytes(format_, 64, "")), dtype=np.uint8)
    assert (packed(weight(format_, "rows", (8, 64), "a"), checkpoint(a=(format_, raw, 64))) == raw.ravel()).all()


@pytest.mark.parametrize(("stored", "dtype"), [("bf16", None), ("f16", np.float16)])
def test_a_vector_is_widened_exactly(stored, dtype):
    values = np.array([1.0, -0.5, 3.140625, 0.0], np.float32)
    raw = values.astype(dtype) if dtype else (values.view(np.uint32) >> 16).astype(np.uint16)
    source = Checkpoint("model", {}, {"a": Tensor(stored, (4,))}, lambda *_: raw.tobytes())
    data = packed(weight("f32", "rows", (4,), "a"), source).view(np.float32)
    assert (data == raw.astype(np.float32) if dtype else data == values).all()


def test_several_sources_are_stacked():
    raw, _ = quantized(KINDS.Q4_1)
    both = checkpoint(a=("q4_1", raw[:16], 96), b=("q4_1", raw[16:], 96))
    whole = checkpoint(a=("q4_1", raw, 96))
    stacked = packed(weight("q4_1", "tile16", (32, 96), "a", "b"), both)
    assert (stacked == packed(weight("q4_1", "tile16", (32, 96), "a"), whole)).all()


def test_pieces_make_no_difference(monkeypatch):
    raw, _ = quantized(KINDS.Q8_0, rows=160)
    args = weight("q8_0", "tile16", (160, 96), "a"), checkpoint(a=("q8_0", raw, 96))
    whole = packed(*args)
    monkeypatch.setattr(pack, "_PIECE", 1)
    assert len(list(pack.packed_chunks(*args))) == 10
    assert (packed(*args) == whole).all()


def test_computed_values_are_written_as_float32():
    assert (
        packed(weight("f32", "rows", (3,), values=(1.0, 0.5, 0.25)), checkpoint()).view(np.float32) == [1, 0.5, 0.25]
    ).all()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (weight("q4_1", "tile16", (16, 96), "b"), "tensor b is missing"),
        (
            weight("q8_0", "tile16", (16, 96), "a"),
            r"tensor a is q4_1 \[16, 96\], for w the plan expects q8_0 \[16, 96\]",
        ),
        (
            weight("q4_1", "tile16", (16, 64), "a"),
            r"tensor a is q4_1 \[16, 96\], for w the plan expects q4_1 \[16, 64\]",
        ),
        (weight("q4_1", "tile16", (48, 96), "a", "a"), r"a \+ a have 32 rows, the plan expects 48"),
    ],
)
def test_another_checkpoint_than_planned_is_refused(wanted, message):
    raw, _ = quantized(KINDS.Q4_1, rows=16)
    with pytest.raises(BuildError, match=message) as caught:
        pack.check_sources(wanted, checkpoint(a=("q4_1", raw, 96)))
    assert "pih lock" in str(caught.value)


def test_an_unknown_layout_is_refused():
    raw, _ = quantized(KINDS.Q4_1, rows=16)
    with pytest.raises(BuildError, match="no packing of q4_1 into the layout 'spiral'"):
        packed(weight("q4_1", "spiral", (16, 96), "a"), checkpoint(a=("q4_1", raw, 96)))


NO_NUMBERS = {
    "f32": [b"\0\0\x80\x7f", b"\0\0\xc0\xff", b"\1\0\x80\x7f"],
    "f16": [b"\0\x7c", b"\0\xfc", b"\1\x7c"],
    "bf16": [b"\x80\x7f", b"\x80\xff", b"\xc0\x7f"],
    "q4_1": [b"\0\x7c", b"\0\0\0\xfe"],  # scale, minimum
    "q8_0": [b"\0\x7c"],
    "int8": [b"\0\0\x80\x7f"],
}


@pytest.mark.parametrize("format_", NO_NUMBERS)
def test_a_value_that_is_no_finite_number_is_refused_wherever_it_stands(format_):
    size = tensor_bytes(format_, (16, 64), "")
    row, head, block = size // 16, head_bytes(format_), BLOCKS[format_][1]
    sound = np.full(size, 0x77, np.uint8)  # finite in every format
    sound[row * np.arange(16)[:, None] + np.arange(head)] = 0
    check_finite(sound.reshape(16, row), format_, "w", "x.gguf")
    for bad in NO_NUMBERS[format_]:
        blocks = range(head, row, block)
        for start in [0] if head else [blocks[0], blocks[-1]]:
            for line in (0, 15):
                data = sound.reshape(16, row).copy()
                data[line, start : start + len(bad)] = np.frombuffer(bad, np.uint8)
                with pytest.raises(BuildError, match=r"x\.gguf: tensor w has values that are no finite numbers"):
                    check_finite(data, format_, "w", "x.gguf")
