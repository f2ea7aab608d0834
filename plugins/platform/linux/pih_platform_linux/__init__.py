"""platform.host on Linux: what this process may use here, and whether that is what the lock was made for.

A host that lacks an instruction set or has less memory than the budget is refused before anything is allocated.
"""

from __future__ import annotations

from pathlib import Path

from pih_platform_linux import cgroup, cpu
from pih_platform_linux.host import LinuxHost, check
from pih_runtime.contracts import Context

__all__ = ["start"]


def start(context: Context) -> LinuxHost:
    """Measure this host and check it against the lock's target and budget."""
    root = Path("/")
    target, budget = context.lock["target"], context.lock["budget"]
    limits = cgroup.read(root)
    flags = cpu.flags(root)
    host = LinuxHost(
        threads=max(1, min(target["threads"], cpu.count(limits.cpus))),
        memory_bytes=min(limits.memory_bytes, cpu.memory_bytes(root)),
        isa=cpu.levels(flags),
    )
    check(host, flags, target["isa"], budget)
    context.log(f"host threads={host.threads} of {target['threads']} memory={host.memory_bytes}")
    return host
