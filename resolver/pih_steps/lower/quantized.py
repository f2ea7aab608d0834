"""A bf16 checkpoint as if it stored its matrices as int8: one float32 scale a row, then a signed byte a value.

    scale = largest absolute value / 127, q = value / scale to the nearest integer, ties to even; value = scale * q

Every matrix, the table of embeddings among them: where a head shares it, it is a quarter and more of the bytes that
each token reads, and one rule serves tied and untied heads alike. Vectors stay as they are. Divisions, maxima and
roundings of single values only: the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pih_runtime.errors import BuildError
from pih_steps.lower.checkpoint import Checkpoint, Tensor

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

FORMATS = ("stored", "int8")


def stored_as(format_: str, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its matrices in this one of FORMATS; 'stored' is as they are.

    Raises BuildError where none of them is bf16. Reading raises it where a value is not finite.
    """
    if format_ not in FORMATS:
        raise BuildError(f"weights in the format {format_!r}", where="checkpoint", fix=f"one of {', '.join(FORMATS)}")
    if format_ == "stored":
        return checkpoint
    matrices = {
        name for name, tensor in checkpoint.tensors.items() if tensor.format == "bf16" and len(tensor.shape) > 1
    }
    if not matrices:
        raise BuildError(
            "no matrix of the checkpoint is bf16, from which int8 is made",
            where=checkpoint.where,
            fix='weights.format = "stored", or a checkpoint in bf16',
        )

    def read(name: str, start: int, stop: int) -> bytes:
        data = checkpoint.read(name, start, stop)
        return _rows(data, stop - start, f"{checkpoint.where}: {name}") if name in matrices else data

    tensors = {
        name: Tensor("int8", tensor.shape) if name in matrices else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors, read=read)


def _rows(data: bytes, count: int, where: str) -> bytes:
    import numpy as np  # only where values are made

    values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(count, -1)
    if not np.isfinite(values).all():
        raise BuildError("a weight is not finite", where=where, fix="take a sound checkpoint")
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    quotients = values / np.where(scales == 0, np.float32(1), scales)
    rows: NDArray[uint8] = np.empty((count, 4 + values.shape[1]), np.uint8)
    rows[:, :4] = scales.astype("<f4").view(np.uint8)
    rows[:, 4:] = np.clip(np.rint(quotients), -127, 127).astype(np.int8).view(np.uint8)
    return rows.tobytes()
