"""The CUDA unit tests (tests/cuda) on the software GPU: what they say of the kernels, and of kernels with a bug."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

import pytest

from tests.support import simgpu
from tests.support.program import ROOT

UNITS = sorted((ROOT / "tests/cuda").glob("*.cu"))
KERNELS = sorted(path.name for path in simgpu.SOURCES.glob("*.cuh"))
NO_KERNEL = {"device.cuh", "pack.cuh", "weight.cuh"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.getbasetemp() / "simgpu"
    made.mkdir(exist_ok=True)
    return made


@dataclass(frozen=True)
class Bug:
    """What stands first in a source is replaced; the unit test must fail with these words."""

    unit: str
    source: str
    old: str
    new: str
    words: str


BUGS = [
    Bug("attention", "attention.cuh", "sequence * step.counts[3] + block]", "block]", "simgpu: address"),
    Bug("attention", "attention.cuh", "*counter = 0;", "*counter += 0;", "decode again: row"),
    Bug("attention", "attention.cuh", "part = threadIdx.x % 8, place", "part = threadIdx.x % 4, place", "decode: row"),
    Bug("embed", "embed.cuh", "step.sampled[-id - 1]", "step.sampled[-id]", "embed_bf16: row 2"),
    Bug("linear", "linear.cuh", "v.x, v.y", "v.y, v.x", "wide: row"),
    Bug("linear", "linear.cuh", "slice = 1; slice < SLICES", "slice = 2; slice < SLICES", "to 32 tokens: row"),
    Bug("linear", "linear.cuh", "n % 16)", "n % 8)", "wide: row"),
    Bug("linear", "linear.cuh", "if (token >= tokens) return;", "", "simgpu: address"),
    Bug("rms_norm", "pack.cuh", "distance; distance /= 2", "distance > 1; distance /= 2", "rms_norm: row"),
    Bug("rms_norm", "rms_norm.cuh", "step.rows[row]", "row", "gather_rms_norm_bf16: row"),
    Bug("rms_norm", "rms_norm.cuh", "i < COLUMNS / 2", "i <= COLUMNS / 2", "written beside row"),
    Bug("rope_kv_write", "kv_write.cuh", "position / 8 * 2", "position / 8", "kv_write: row 1"),
    Bug("rope_kv_write", "rope.cuh", "y * c + x * s", "y * c - x * s", "rope: row"),
    Bug("rope_kv_write", "rope_kv_write.cuh", "is_q ? 0 : 1", "0", "norm_rope_kv_write: row"),
    Bug("rows", "rows.cuh", "if (row >= rows_of(call, step)) return;", "", "simgpu: address"),
    Bug("rows", "rows.cuh", "WANTED ? step.rows[row] : row", "row", "gather: row"),
    Bug("sample", "sample.cuh", "(0xffffffffu - static_cast<unsigned>(id))", "unsigned(id)", "greedy: row"),
    Bug("sample", "sample.cuh", "wish.min_p)", "wish.min_p / 2)", "not kept|draw"),
    Bug("silu_mul", "silu_mul.cuh", "expf(-x)", "expf(x)", "silu_mul: row"),
]  # fmt: skip


def test_every_kernel_has_a_unit_test():
    included = {name for path in UNITS for name in re.findall(r"#include <(\w+\.cuh)>", path.read_text())}
    nested = {"kv_write.cuh", "rope.cuh"}  # of rope_kv_write.cuh, whose unit test has theirs
    assert included | nested | NO_KERNEL == {*KERNELS}


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_passes(unit, folder):
    done = simgpu.unit_test(folder, unit)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"on simgpu \(sm_89\)\n[1-9]\d+ values compared, 0 wrong\n", done.stdout)


def test_fails_where_there_is_no_device(folder):
    done = simgpu.unit_test(folder, UNITS[0], devices="")
    assert (done.returncode, done.stdout) == (9, "")
    assert done.stderr == "no CUDA device, so nothing was tested: no CUDA-capable device is detected\n"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.unit}: {bug.new or 'without'} {bug.old}")
def test_a_bug_is_caught(bug, folder, tmp_path):
    shutil.copytree(simgpu.SOURCES, tmp_path / "cuda")
    path = tmp_path / "cuda" / bug.source
    text = path.read_text()
    assert bug.old in text
    path.write_text(text.replace(bug.old, bug.new, 1))
    done = simgpu.unit_test(folder, ROOT / f"tests/cuda/{bug.unit}.cu", tmp_path / "cuda")
    assert done.returncode == 1
    assert re.search(bug.words, done.stderr), done.stderr
