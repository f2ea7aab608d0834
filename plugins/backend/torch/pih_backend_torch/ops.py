"""Every op but `sample`: the executable text of `pih_runtime.ops`.

Operands come in its order, outputs are written in place.
Values are float32; inside an op sums are float64, so that the oracle's own rounding is well below what it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch

from pih_backend_torch.batch import Batch

Tensor = torch.Tensor
Attrs = Mapping[str, Any]


def _embed(batch: Batch, _attrs: Attrs, table: Tensor, y: Tensor) -> None:
    y.copy_(table[batch.ids])


def _rms_norm(_batch: Batch, attrs: Attrs, x: Tensor, weight: Tensor, y: Tensor) -> None:
    groups = x.reshape(len(x), -1, len(weight)).double()
    scale = torch.rsqrt(groups.square().mean(dim=-1, keepdim=True) + attrs["eps"])
    y.copy_((groups * scale * weight).reshape(len(x), -1))


def _linear(_batch: Batch, attrs: Attrs, x: Tensor, weight: Tensor, y: Tensor) -> None:
    product = x.double() @ weight.T.double()
    y.copy_(y + product if attrs["accumulate"] else product)


def _rope_table(batch: Batch, _attrs: Attrs, inv_freq: Tensor, y: Tensor) -> None:
    angles = batch.positions[:, None].float() * inv_freq
    y.copy_(torch.cat([angles.cos(), angles.sin()], dim=1))


def _rope(_batch: Batch, attrs: Attrs, x: Tensor, table: Tensor, _y: Tensor) -> None:
    half = attrs["head_dim"] // 2
    heads = x.reshape(len(x), -1, attrs["head_dim"])
    cos, sin = table[:, None, :half], table[:, None, half:]
    if attrs["pairs"] == "half":
        a, b = heads[..., :half], heads[..., half:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    else:
        a, b = heads[..., 0::2], heads[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1)
    x.copy_(turned.reshape(len(x), -1))


def _kv_write(batch: Batch, attrs: Attrs, k: Tensor, v: Tensor, cache: Tensor) -> None:
    page_size = cache.shape[3]
    pages, places = batch.slots // page_size, batch.slots % page_size
    for side, values in enumerate((k, v)):
        cache[side, pages, :, places] = values.reshape(len(values), -1, attrs["head_dim"]).to(cache.dtype)


def _attention(batch: Batch, attrs: Attrs, q: Tensor, cache: Tensor, y: Tensor) -> None:
    head_dim, starts = attrs["head_dim"], batch.step.seq_start
    for index, (start, stop) in enumerate(pairwise(starts)):
        positions = batch.positions[start:stop]
        seen = int(positions[-1]) + 1
        blocks = -(-seen // cache.shape[3])
        # [K,V][page][head][place][dim] → [K,V][head][position][dim]
        own = cache[:, batch.pages[index, :blocks]].transpose(1, 2).flatten(2, 3)[:, :, :seen].double()
        heads = q[start:stop].reshape(stop - start, -1, head_dim).transpose(0, 1).double()
        keys, values = (side.repeat_interleave(len(heads) // len(side), dim=0) for side in own)
        scores = heads @ keys.transpose(1, 2) * attrs["scale"]
        hidden = torch.arange(seen)[None, :] > positions[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        y[start:stop] = (weights @ values).transpose(0, 1).reshape(stop - start, -1)


def _silu_mul(_batch: Batch, _attrs: Attrs, gate: Tensor, up: Tensor, y: Tensor) -> None:
    wide = gate.double()
    y.copy_(wide / (1 + torch.exp(-wide)) * up)


def _gather(batch: Batch, _attrs: Attrs, x: Tensor, y: Tensor) -> None:
    y.copy_(x[batch.rows])


def _add(_batch: Batch, _attrs: Attrs, x: Tensor, y: Tensor) -> None:
    y.add_(x)


RUN: dict[str, Callable[..., None]] = {
    "embed": _embed,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "rope_table": _rope_table,
    "rope": _rope,
    "kv_write": _kv_write,
    "attention": _attention,
    "silu_mul": _silu_mul,
    "gather": _gather,
    "add": _add,
}
