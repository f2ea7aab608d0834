"""The op `sample`: from logits to ids, as `pih_runtime.ops` defines it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pih_runtime.ops import uniform
from pih_runtime.step import Sampling


def sample(logits: torch.Tensor, sampling: Sequence[Sampling], positions: Sequence[int]) -> list[int]:
    """An id for each row of logits [R,V]; positions are those of the rows' tokens."""
    return [_one(row, how, position) for row, how, position in zip(logits, sampling, positions, strict=True)]


def _one(logits: torch.Tensor, how: Sampling, position: int) -> int:
    order = torch.sort(logits, descending=True, stable=True).indices  # equal logits stay in order of their ids
    if how.temperature == 0:
        return int(order[0])
    kept = order[: how.top_k] if how.top_k else order
    weights = torch.softmax(logits[kept].double() / how.temperature, dim=0)
    if how.top_p < 1:
        enough = torch.cumsum(weights, dim=0) >= how.top_p
        length = int(enough.to(torch.int8).argmax()) + 1 if bool(enough.any()) else len(weights)
        weights = weights[:length]
    weights = weights[weights >= how.min_p * weights[0]]  # a prefix: they fall
    sums = torch.cumsum(weights, dim=0)
    draw = uniform(how.seed, position) * float(sums[-1])
    return int(kept[int((sums > draw).to(torch.int8).argmax())])
