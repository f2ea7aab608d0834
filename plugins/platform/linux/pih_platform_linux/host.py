"""The host as other plugins see it, and its check against the lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pih_platform_linux import cpu
from pih_runtime.errors import WorkerError


@dataclass(frozen=True, slots=True)
class LinuxHost:
    """Serves platform.host. Bytes and threads are what this process may use, not what the machine has."""

    threads: int
    memory_bytes: int
    isa: frozenset[str]


def check(host: LinuxHost, flags: frozenset[str], isa: str, budget: Mapping[str, int]) -> None:
    """WorkerError where the kernels cannot run here or the budget does not fit."""
    if isa not in host.isa:
        lacking = " ".join(sorted(cpu.LEVELS.get(isa, frozenset()) - flags)) or "unknown to this worker"
        raise WorkerError(
            f"this CPU cannot run kernels for {isa}; it lacks: {lacking}",
            where="target.isa",
            fix="run on a newer CPU, or build with another target.isa in the profile",
        )
    if host.memory_bytes < budget["total"]:
        held = ("spill", "host") if budget["device"] else ("weights", "kv", "activations", "spill", "host")
        parts = " + ".join(f"{name} {budget[name]}" for name in held)
        raise WorkerError(
            f"the deployment needs {budget['total']} bytes ({parts}), this process may use {host.memory_bytes}",
            where="budget",
            fix="give the container or host more memory, or build with a smaller context or batch",
        )
