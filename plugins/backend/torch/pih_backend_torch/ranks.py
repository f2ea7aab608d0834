"""Collectives of a plan of several ranks, by the transport's end that this rank has."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pih_runtime.contracts import Rank


def _all_reduce(rank: Rank, x: torch.Tensor, y: torch.Tensor) -> None:
    send, total = x.contiguous(), torch.empty(x.shape)
    rank.all_reduce(_memory(send), _memory(total), send.numel(), "f32")
    y.copy_(total)


def _all_gather(rank: Rank, x: torch.Tensor, y: torch.Tensor) -> None:
    send, parts = x.contiguous(), torch.empty(rank.size, *x.shape)
    rank.all_gather(_memory(send), _memory(parts), send.numel(), "f32")
    y.copy_(parts.transpose(0, 1).reshape(len(x), -1))


def _memory(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.numpy().reshape(-1)).cast("B")


RUN: dict[str, Callable[[Rank, torch.Tensor, torch.Tensor], None]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
}
