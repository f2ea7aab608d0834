"""Mapped weights: tensors by name, and the checks they must pass before use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pih_runtime.errors import SealError, WorkerError
from pih_storage_safetensors.chunks import Chunks
from pih_storage_safetensors.file import MappedFile
from pih_storage_safetensors.header import Tensor, extent, parse


@dataclass(frozen=True, slots=True)
class MappedWeights:
    """Serves storage.weights. chunks: None where nothing says what the bytes should be.

    told: called once all of them are checked, with the seconds that the last took.
    """

    file: MappedFile
    tensors: Mapping[str, Tensor]
    chunks: Chunks | None
    told: Callable[[float], None]

    def tensor(self, name: str) -> memoryview:
        """The bytes of one tensor, in the map itself, checked."""
        self.check((name,))
        return self.unchecked(name)

    def unchecked(self, name: str) -> memoryview:
        """The same before `check`: for their address alone."""
        tensor = self._tensor(name)
        return self.file.data[tensor.start : tensor.end]

    def check(self, names: Iterable[str]) -> None:
        """SealError unless all bytes of these tensors are the sealed ones; what was checked once is not read again."""
        if self.chunks is None or not self.chunks.left:
            return
        wanted = [self._tensor(name) for name in names]
        began = time.monotonic()
        last = self.chunks.check({f"tensor {tensor.name!r}": (tensor.start, tensor.end) for tensor in wanted})
        self.file.check_unchanged()
        if last:
            self.told(time.monotonic() - began)

    def stop(self) -> None:
        """Let go of the map. A second call does nothing."""
        self.file.stop()

    def _tensor(self, name: str) -> Tensor:
        found = self.tensors.get(name)
        if found is None:
            raise WorkerError(f"the weights hold no tensor {name!r}", fix="build the bundle again")
        return found


def tensors_of(data: memoryview, chunks: Chunks | None, where: str) -> Mapping[str, Tensor]:
    """The file's tensors; the header is checked before a word of it is believed."""
    try:
        if chunks is not None:
            chunks.check({"the header": (0, extent(data))})
        return parse(data)
    except ValueError as problem:
        raise SealError(f"not a safetensors file: {problem}", where=where) from problem


def check_against(tensors: Mapping[str, Tensor], wanted: Mapping[str, int], where: str) -> None:
    """Every tensor of the plan, of all its ranks, is there with its length; there is no other but filler."""
    fix = "mount the weights that were packed for this bundle (pih weights pack)"
    for name, size in wanted.items():
        found = tensors.get(name)
        if found is None:
            raise SealError(f"the plan needs tensor {name!r}, the file has none", where=where, fix=fix)
        if found.end - found.start != size:
            have = found.end - found.start
            raise SealError(f"tensor {name!r} has {have} bytes, the plan says {size}", where=where, fix=fix)
    extra = sorted(name for name in tensors if name not in wanted and not name.startswith("_pad."))
    if extra:
        raise SealError(f"the file holds tensor {extra[0]!r}, which the plan does not use", where=where, fix=fix)
