"""CPU quota and memory limit of this process's cgroup, version 1 and 2, nested limits included."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 62  # version 1 writes a number near 2^63 where there is no limit


@dataclass(frozen=True, slots=True)
class Limits:
    """cpus: quota in CPUs, inf without one. memory_bytes: UNLIMITED without a limit."""

    cpus: float
    memory_bytes: int


def read(root: Path) -> Limits:
    """The tightest limit on the path from this process's cgroup up to the mount; what cannot be read does not limit."""
    cpus, memory = [math.inf], [UNLIMITED]
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            cpus += [_quota(*_text(folder / "cpu.max").split()) for folder in _upwards(mount, path)]
            memory += [_bytes(_text(folder / "memory.max")) for folder in _upwards(mount, path)]
        if "memory" in controllers.split(","):
            memory += [_bytes(_text(folder / "memory.limit_in_bytes")) for folder in _upwards(mount / "memory", path)]
        if "cpu" in controllers.split(","):
            cpus += [
                _quota(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))
                for folder in _upwards(mount / "cpu", path)
            ]
    return Limits(cpus=min(cpus), memory_bytes=min(memory))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Folders from the mount down to `path`; in a container the path may be the host's and lead nowhere here."""
    folder = mount
    yield folder
    for name in path.strip("/").split("/"):
        folder = folder / name
        yield folder


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # no such controller, version or path: no limit from here
        return ""


def _bytes(text: str) -> int:
    return min(int(text), UNLIMITED) if text.isdigit() else UNLIMITED


def _quota(quota: str = "", period: str = "") -> float:
    """CPUs; 'max' (version 2), '-1' (version 1) and a missing file are no limit."""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else math.inf
