"""The devices, as a vendor's library gives them: enumerated, with a pool of memory each.

This machine has none, so two are simulated: 256 MiB each, in host memory. NPU_VISIBLE_DEVICES names those that this
process may use, by index, in the order in which it wants to number them; unset: all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pih_runtime.errors import WorkerError

VISIBLE = "NPU_VISIBLE_DEVICES"
_PRESENT, _BYTES, _GRANULE = 2, 256 << 20, 256


@dataclass(slots=True)
class Pool:
    """Memory of one device, in granules. used, peak: bytes that are, and ever were, taken."""

    capacity: int
    used: int = 0
    peak: int = 0

    def take(self, nbytes: int, purpose: str) -> memoryview:
        """Zeroed memory; WorkerError where the device has not so much left."""
        size = _granules(nbytes)
        if self.used + size > self.capacity:
            raise WorkerError(
                f"no device memory for {purpose}: {nbytes} bytes asked, {self.capacity - self.used} left",
                fix="lock the profile with smaller limits, or make another device visible",
            )
        self.used += size
        self.peak = max(self.peak, self.used)
        return memoryview(bytearray(nbytes))

    def give_back(self, nbytes: int) -> None:
        """What `take` gave is free again."""
        self.used -= _granules(nbytes)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. index: as the vendor's tools number it."""

    index: int
    pool: Pool = field(default_factory=lambda: Pool(_BYTES))


def visible(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices that this process may use; WorkerError where the variable names none, or one twice or absent."""
    text = environment.get(VISIBLE)
    if text is None:
        return tuple(Device(index) for index in range(_PRESENT))
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = [str(index) for index in range(_PRESENT)]
    wrong = next((word for word in words if word not in known or words.count(word) > 1), None)
    if wrong is not None or not words:
        what = f"names {wrong!r}" if words else "names no device"
        raise WorkerError(
            f"{VISIBLE}={text} {what}; present are {', '.join(known)}",
            where="backend/npu",
            fix=f"correct or unset {VISIBLE}",
        )
    return tuple(Device(int(word)) for word in words)


def assigned(devices: Sequence[Device], rank: int) -> Device:
    """A rank's own device; WorkerError where fewer are visible."""
    if rank >= len(devices):
        raise WorkerError(
            f"rank {rank} has no device: {len(devices)} are visible",
            where="backend/npu",
            fix=f"make more devices visible ({VISIBLE})",
        )
    return devices[rank]


def _granules(nbytes: int) -> int:
    return -(-nbytes // _GRANULE) * _GRANULE
