"""One op of a kernel pack, run on numpy arrays with a team of threads."""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pih_runtime.isa import ISA_FLAGS, cpu_flags
from pih_steps import kernels
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "plugins" / "backend" / "cpu"))
pack_module = importlib.import_module("pih_backend_cpu.pack")
ISAS = tuple(sorted(kernels.CPU_OF_ISA))


def host_has(isa):
    return ISA_FLAGS[isa] <= cpu_flags(Path("/proc/cpuinfo").read_text())


def binding(template, source, **constants):
    """One kernel to compile, with its scalar reference beside it."""
    tail = "".join(f"_{name}{value}" for name, value in constants.items())
    return [
        {"template": name, "source": source, "constants": constants, "symbol": name + tail}
        for name in (template, f"{template}_ref")
    ]


@dataclass
class Team:
    """A pack with its threads; `run` takes calls as (symbol, wanted, operands) and the fields of a step."""

    pack: object
    threads: int

    def __post_init__(self):
        self.memory = np.zeros(self.pack.team_bytes + 64, np.uint8)
        self.address = (self.memory.ctypes.data + 63) // 64 * 64
        self.hosts = [threading.Thread(target=self.pack.thread, args=(self.address, i)) for i in range(1, self.threads)]
        for host in self.hosts:
            host.start()

    def stop(self):
        self.pack.stop(self.address)
        for host in self.hosts:
            host.join(PATIENCE)
            assert not host.is_alive()

    def run(self, calls, *, parts=0, alone=0, **fields):
        table = (pack_module.CCall * len(calls))()
        for entry, (symbol, wanted, operands) in zip(table, calls, strict=True):
            entry.kernel = pack_module.symbol_address(self.pack, symbol)
            entry.wanted = wanted
            entry.parts, entry.alone = parts or self.threads, alone
            for place, operand in zip(entry.operand, operands, strict=False):
                place.data = operand.ctypes.data
                # A cache is [2 (K, V), ...]: its stride is from one block to the other.
                place.stride = operand.strides[0] if operand.ndim > 1 else 0
                place.columns = operand.shape[-1]
        step, keep = c_step(**fields)
        self.pack.run(self.address, self.threads, table, len(table), ctypes.byref(step))
        del keep


def c_step(tokens=0, wanted=0, seq_start=None, sampling=(), scratch=None, scratch_floats=0, pages_per_seq=0, **arrays):
    """A pih_step; arrays are any sequences of ints."""
    seq_start = [0, tokens] if seq_start is None else seq_start
    keep = {"seq_start": array("i", seq_start), "seq_of": array("i", [0] * max(tokens, 1))}
    for name, values in arrays.items():
        keep[name] = values if isinstance(values, array) else array("i", list(values))
    raw = (pack_module.CSampling * max(len(sampling), 1))()
    for place, item in zip(raw, sampling, strict=False):
        place.temperature, place.top_k, place.top_p, place.min_p, place.seed = item
    step = pack_module.CStep(
        tokens=tokens, seqs=len(seq_start) - 1, wanted=wanted, pages_per_seq=pages_per_seq, sampling=raw
    )
    for name, values in keep.items():
        setattr(step, name, values.buffer_info()[0])
    if scratch is not None:
        step.scratch, step.scratch_floats = scratch.ctypes.data, scratch_floats
    return step, (keep, raw, scratch)
