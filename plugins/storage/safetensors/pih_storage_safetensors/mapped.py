"""A memory-mapped weights file and the two checks it must pass before use."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pih_runtime.errors import SealError, WorkerError
from pih_runtime.plan import Weight
from pih_storage_safetensors.header import Tensor, parse


@dataclass(frozen=True, slots=True)
class MappedWeights:
    """Serves storage.weights. data: the whole file, read only."""

    data: memoryview
    tensors: Mapping[str, Tensor]

    def tensor(self, name: str) -> memoryview:
        """The bytes of one tensor, in the map itself."""
        found = self.tensors.get(name)
        if found is None:
            raise WorkerError(f"the weights hold no tensor {name!r}", fix="build the bundle again")
        return self.data[found.start : found.end]

    def stop(self) -> None:
        """Let go of the map; the kernel frees it with the last view that a backend still holds."""
        self.data.release()


def open_weights(path: Path, *, apart: bool) -> MappedWeights:
    """Map the file and read its header; `apart`: the bundle expects it from a mount."""
    try:
        with path.open("rb") as file:
            # Copy on write, never written: backends need a writable buffer to take its address; pages stay shared.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except (OSError, ValueError) as problem:  # ValueError: an empty file
        fix = "mount the weights at /pih/weights" if apart else "load the image again, or build it again"
        raise WorkerError(f"cannot map the weights: {problem}", where=str(path), fix=fix) from problem
    try:
        return MappedWeights(data, parse(data))
    except ValueError as problem:
        raise SealError(f"not a safetensors file: {problem}", where=str(path)) from problem


def check_digest(weights: MappedWeights, digest: str, where: str) -> None:
    """SealError where the file is not the one the bundle was sealed with."""
    have = f"sha256:{hashlib.sha256(weights.data).hexdigest()}"
    if have != digest:
        raise SealError(
            f"the weights are {have}, bundle.json says {digest}",
            where=where,
            fix="load the image again, or build it again",
        )


def check_against(weights: MappedWeights, wanted: Sequence[Weight], where: str) -> None:
    """Every tensor of the plan is there with its length; there is no other but filler."""
    fix = "mount the weights that were packed for this bundle (pih weights pack)"
    for weight in wanted:
        found = weights.tensors.get(weight.name)
        if found is None:
            raise SealError(f"the plan needs tensor {weight.name!r}, the file has none", where=where, fix=fix)
        if found.end - found.start != weight.nbytes:
            have = found.end - found.start
            raise SealError(
                f"tensor {weight.name!r} has {have} bytes, the plan says {weight.nbytes}", where=where, fix=fix
            )
    names = {weight.name for weight in wanted}
    extra = sorted(name for name in weights.tensors if name not in names and not name.startswith("_pad."))
    if extra:
        raise SealError(f"the file holds tensor {extra[0]!r}, which the plan does not use", where=where, fix=fix)
