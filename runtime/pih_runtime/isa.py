"""ISA names of profiles and locks, as sets of CPU feature flags in /proc/cpuinfo's spelling.

x86-64-v3 and v4 as the x86-64 psABI defines them; v4-bf16-vnni adds AVX512-BF16 and AVX512-VNNI.
"""

from __future__ import annotations

_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

ISA_FLAGS: dict[str, frozenset[str]] = {
    "x86-64-v3": _V3,
    "x86-64-v4-bf16-vnni": _V4 | {"avx512_bf16", "avx512_vnni"},
}


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Feature flags of the first CPU in the text of /proc/cpuinfo; empty where it lists none."""
    lines = cpuinfo.splitlines()
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())
