"""A checkpoint, whatever file it came in: a config, a table of tensors, and their bytes on demand.

Readers (`gguf`, `safetensors`, `synthetic`, `description`) make one; names are those that
Hugging Face models use. A checkpoint is untrusted: readers refuse what does not hold together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps.lower.formats import matrix, row_bytes

Read = Callable[[str, int, int], bytes]


@dataclass(frozen=True, slots=True)
class Tensor:
    """format: a key of `formats.BLOCKS`; shape as the model sees it, rows first."""

    format: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """where: the file that errors name. read(name, start, stop): the stored bytes of these rows."""

    where: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    read: Read


def tensor_row_bytes(checkpoint: Checkpoint, name: str) -> int:
    """Bytes of one stored row of a tensor."""
    tensor = checkpoint.tensors[name]
    return row_bytes(tensor.format, matrix(tensor.shape)[1], f"{checkpoint.where}: {name}")


def no_bytes(where: str) -> Read:
    """The `read` of a checkpoint of which only the description is at hand."""

    def read(name: str, _start: int, _stop: int) -> bytes:
        raise BuildError(
            f"the bytes of tensor {name} are not at hand, only its description",
            where=where,
            fix="fetch the checkpoint, then: pih weights pack",
        )

    return read
