"""Small kernel packs, compiled on demand, and one op run on numpy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import sys
import tempfile
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pih_steps import kernels
from pih_steps.spec import Spec
from tests.support.artifacts import artifact

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "plugins" / "backend" / "cpu"))
pack_module = importlib.import_module("pih_backend_cpu.pack")
ISAS = tuple(sorted(kernels.CPU_OF_ISA))
CPU_FLAGS = {"x86-64-v3": {"avx2", "fma", "f16c"}, "x86-64-v4-bf16-vnni": {"avx512f", "avx512_bf16", "avx512_vnni"}}


def host_has(isa):
    flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    return set(flags) >= CPU_FLAGS[isa]


@pytest.fixture(scope="session")
def ziglang():
    return artifact("wheel", "ziglang")


@pytest.fixture(scope="session")
def build(ziglang):
    """build(isa, bindings) -> path of the pack; cached between sessions by everything that goes into it."""
    trees = {"kernels/include": ROOT / "kernels" / "include", "kernels/cpu": ROOT / "kernels" / "cpu"}
    sources = [path.read_bytes() for tree in trees.values() for path in sorted(tree.glob("*.h"))]
    sources.append(Path(kernels.__file__).read_bytes())
    cache = Path(tempfile.gettempdir()) / f"pih-test-packs-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)

    def compile_once(isa, bindings):
        digest = hashlib.sha256(json.dumps([isa, bindings]).encode() + b"".join(sources)).hexdigest()
        path = cache / f"{digest}.so"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            kernels.run(Spec({"isa": isa, "bindings": bindings}, {"ziglang": ziglang}, trees, {}, (), part))
            part.rename(path)
        return path

    return compile_once


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
            host.join(timeout=30)
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


@pytest.fixture(params=[pytest.param(isa, marks=pytest.mark.where_possible) for isa in ISAS])
def isa(request):
    if not host_has(request.param):
        pytest.skip(f"this CPU lacks {request.param}")
    return request.param


@pytest.fixture
def team(isa, build):
    """team(bindings, threads=1): a running team over a pack of these bindings."""
    running = []

    def make(bindings, threads=1):
        pack = pack_module.load_pack(build(isa, bindings))
        assert pack.isa == isa
        running.append(Team(pack, threads))
        return running[-1]

    yield make
    for one in running:
        one.stop()
