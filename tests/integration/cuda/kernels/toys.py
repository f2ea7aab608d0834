"""Kernels that do what no kernel may (toys.cuh), as a module of the software GPU."""

from __future__ import annotations

import shutil

from tests.support import simgpu
from tests.support.program import ROOT

ENTRIES = {
    "copy": "toy_copy(copy, 0, 64)",
    "ahead": "toy_copy(ahead, 1, 64)",
    "behind": "toy_copy(behind, -1, 64)",
    "misaligned": "toy_misaligned(misaligned)",
    "barrier": "toy_barrier(barrier, 64)",
    "barrier_of_some": "toy_barrier(barrier_of_some, 32)",
    "two_barriers": "toy_two_barriers(two_barriers)",
    "sum": "toy_sum(sum, 32)",
    "sum_of_some": "toy_sum(sum_of_some, 31)",
    "shared": "toy_shared(shared)",
    "race": "toy_race(race)",
    "last": "toy_last(last, true)",
    "last_too_soon": "toy_last(last_too_soon, false)",
}
THREADS = {"misaligned": 32, "sum": 32, "sum_of_some": 32, "shared": 32}


def module(folder):
    """Compiled, with the kernels' own sources beside it."""
    sources = folder / "toys"
    shutil.copytree(ROOT / "kernels/cuda", sources, dirs_exist_ok=True)
    shutil.copy(ROOT / "tests/integration/cuda/kernels/toys.cuh", sources)
    text = "".join(["#include <toys.cuh>\n", *(f"PIH_ENTRIES_{entry}\n" for entry in ENTRIES.values())])
    return simgpu.module(folder, text, sources)
