"""One rank's share of a checkpoint's tensors: the same number of rows, or of columns, for each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pih_runtime.plan import Weight
from pih_steps.lower.checkpoint import Checkpoint, Tensor, tensor_row_bytes
from pih_steps.lower.formats import head_bytes


def share(weight: Weight, checkpoint: Checkpoint, rank: int, ranks: int) -> Checkpoint:
    """The checkpoint as rank `rank` of `ranks` sees the weight's sources; `pack.check_sources` says whether they fit.

    What cannot be divided stays whole, which then does not fit.
    """
    if not weight.split:
        return checkpoint
    tensors = dict(checkpoint.tensors)
    for source in set(weight.sources) & tensors.keys():
        tensors[source] = _share(tensors[source], weight.split, ranks)

    def read(name: str, start: int, stop: int) -> bytes:
        if weight.split == "rows":
            first = rank * tensors[name].shape[0]
            return checkpoint.read(name, first + start, first + stop)
        stride, own = tensor_row_bytes(checkpoint, name), tensor_row_bytes(shared, name)
        rows = np.frombuffer(checkpoint.read(name, start, stop), np.uint8).reshape(stop - start, stride)
        head = head_bytes(tensors[name].format)
        first, size = head + rank * (own - head), own - head
        return np.concatenate([rows[:, :head], rows[:, first : first + size]], axis=1).tobytes()

    shared = replace(checkpoint, tensors=tensors, read=read)
    return shared


def _share(tensor: Tensor, split: str, ranks: int) -> Tensor:
    if len(tensor.shape) != 2 or tensor.shape[split == "columns"] % ranks:
        return tensor
    rows, columns = tensor.shape
    return replace(tensor, shape=(rows // ranks, columns) if split == "rows" else (rows, columns // ranks))
