"""CPUs, their instruction sets, and the machine's memory, from sched_getaffinity and /proc."""

from __future__ import annotations

import math
import os
from pathlib import Path

_V2 = frozenset(("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"))
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Flags of /proc/cpuinfo that each level needs (the psABI's levels; the last adds what the kernels of that name use).
LEVELS = {
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "x86-64-v4-bf16-vnni": _V4 | {"avx512_bf16", "avx512_vnni"},
}


def flags(root: Path) -> frozenset[str]:
    """Flags that every CPU has: a machine may mix kinds, and a thread may run on any of them."""
    text = (root / "proc/cpuinfo").read_text()
    rows = [line.partition(":")[2].split() for line in text.splitlines() if line.startswith("flags")]
    return frozenset.intersection(*map(frozenset, rows)) if rows else frozenset()


def levels(found: frozenset[str]) -> frozenset[str]:
    """ISA levels whose flags are all there."""
    return frozenset(name for name, needed in LEVELS.items() if needed <= found)


def count(quota: float) -> int:
    """CPUs to use: those this process may run on, at most what the cgroup's quota is worth."""
    return max(1, min(len(os.sched_getaffinity(0)), math.ceil(quota) if math.isfinite(quota) else 1 << 20))


def memory_bytes(root: Path) -> int:
    """MemTotal: page cache is reclaimed as needed, so free memory would say too little."""
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0
