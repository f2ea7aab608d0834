"""Weight formats as checkpoints store them, to float32."""

from __future__ import annotations

import torch

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Weight


def as_float32(weight: Weight, data: memoryview) -> torch.Tensor:
    """The weight's values, in its shape."""
    if weight.layout != "rows" or weight.format not in ("int8", *_DECODE):
        raise WorkerError(
            f"weight {weight.name} is {weight.format} {weight.layout}", where="plan", fix="lower for backend/torch"
        )
    if len(data) != weight.nbytes:
        raise WorkerError(f"weight {weight.name} has {len(data)} bytes, not {weight.nbytes}", where="weights")
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    if weight.format == "int8":
        return _int8(raw, weight.shape[-1])
    return _DECODE[weight.format](raw).reshape(weight.shape)


def _q4_1(raw: torch.Tensor) -> torch.Tensor:
    """Blocks of 32: f16 scale, f16 minimum, 16 bytes whose low halves are values 0-15 and high halves 16-31."""
    blocks = raw.view(-1, 20)
    scale, minimum = blocks[:, 0:2].view(torch.float16).float(), blocks[:, 2:4].view(torch.float16).float()
    values = torch.cat([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], dim=1)
    return values.float() * scale + minimum


def _q8_0(raw: torch.Tensor) -> torch.Tensor:
    """Blocks of 32: f16 scale, 32 signed bytes."""
    blocks = raw.view(-1, 34)
    return blocks[:, 2:].view(torch.int8).float() * blocks[:, 0:2].view(torch.float16).float()


def _int8(raw: torch.Tensor, columns: int) -> torch.Tensor:
    """Rows of an f32 scale, then signed bytes."""
    rows = raw.view(-1, 4 + columns)
    return rows[:, 4:].view(torch.int8).float() * rows[:, :4].contiguous().view(torch.float32)


_DECODE = {
    "f32": lambda raw: raw.view(torch.float32).clone(),
    "f16": lambda raw: raw.view(torch.float16).float(),
    "bf16": lambda raw: raw.view(torch.bfloat16).float(),
    "q4_1": _q4_1,
    "q8_0": _q8_0,
}
