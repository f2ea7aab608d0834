"""Waiting for what must come. The machine may be slow: an end is there only for what would never come."""

import os
import time
from pathlib import Path

import pytest

PATIENCE = 120.0  # seconds
_TICKS = os.sysconf("SC_CLK_TCK")


def until(condition, *, what="what was waited for", pause=0.01):
    """Return the first answer of `condition` that is true; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"{what} did not come within {PATIENCE:g} s")
        time.sleep(pause)
    return found


def runs(pid):
    """Whether a process is there and has not ended; one that has may wait for its parent."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_seconds(pid):
    """What a process has taken of the processor, itself and by the kernel: however busy the machine is with others."""
    user, system = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS
