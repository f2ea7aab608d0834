"""The CUDA unit tests (tests/cuda) as a CUDA toolkit compiles them, for both devices; without a GPU they say that.

rules_cuda cannot be installed from a package registry here. In its place stand two rules of the same names and
attributes that call nvcc once: what they show is the module itself, its files and how they find each other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders.bazel import world
from tests.support.program import ROOT

FOLDER = ROOT / "tests/cuda"
UNITS = sorted(FOLDER.glob("*.cu"))
TOOLKIT = Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"))
FLAGS = [
    *("-std=c++20", "--fmad=false", f"-I{ROOT / 'kernels/cuda'}"),
    *("-gencode=arch=compute_89,code=sm_89", "-gencode=arch=compute_90,code=sm_90"),
    *("-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-Werror"),
]
STAND_IN = {
    "MODULE.bazel": 'module(name = "rules_cuda", version = "0.3.0")',
    "BUILD.bazel": "",
    "cuda/BUILD.bazel": """
load(":defs.bzl", "archs")
archs(name = "archs", build_setting_default = "", visibility = ["//visibility:public"])
""",
    "cuda/defs.bzl": """
ArchsInfo = provider(fields = ["all"])

def _archs(ctx):
    return ArchsInfo(all = ctx.build_setting_value.split(";"))

archs = rule(_archs, build_setting = config.string(flag = True))

def cuda_library(name, hdrs, includes, visibility):
    native.cc_library(name = name, hdrs = hdrs, includes = includes, visibility = visibility)

def _cuda_test(ctx):
    program = ctx.actions.declare_file(ctx.label.name)
    found = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    arguments = ctx.actions.args()
    arguments.add_all(ctx.attr.copts)
    arguments.add_all(found.system_includes, before_each = "-isystem")
    for arch in ctx.attr._archs[ArchsInfo].all:
        arguments.add("-gencode=arch=%s,code=%s" % (arch.replace("sm", "compute"), arch))
    arguments.add_all([file for file in ctx.files.srcs if file.extension == "cu"])
    arguments.add_all(["-o", program])
    ctx.actions.run(
        executable = "NVCC",
        arguments = [arguments],
        env = {"PATH": "/usr/bin"},
        inputs = depset(ctx.files.srcs, transitive = [found.headers]),
        mnemonic = "CudaCompile",
        outputs = [program],
    )
    return [DefaultInfo(executable = program)]

cuda_test = rule(
    _cuda_test,
    test = True,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu", ".cuh"]),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_archs": attr.label(default = ":archs"),
    },
)
""",
}


@pytest.fixture(scope="module")
def nvcc():
    """The toolkit's compiler."""
    found = shutil.which("nvcc", path=f"{TOOLKIT}/bin") or shutil.which("nvcc")
    return found or pytest.skip(f"no CUDA toolkit is installed: no nvcc in {TOOLKIT}/bin or PATH")


@pytest.mark.where_possible
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_compiles_without_a_warning(unit, nvcc, tmp_path):
    made = tmp_path / unit.stem
    done = subprocess.run([nvcc, *FLAGS, unit, "-o", made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    ran = subprocess.run([made], capture_output=True, text=True, check=False)
    if Path("/dev/nvidiactl").exists():
        assert (ran.returncode, ran.stderr) == (0, "")
    else:
        assert ran.returncode == 9
        assert ran.stderr.startswith("no CUDA device, so nothing was tested: ")


@pytest.fixture
def rules(nvcc, tmp_path):
    """The folder of what stands for rules_cuda."""
    made = tmp_path / "rules_cuda"
    for name, text in STAND_IN.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text.replace("NVCC", nvcc))
    return made


@pytest.mark.where_possible
def test_the_module_builds_them_and_a_test_without_a_device_fails(rules, tree, network, tmp_path):
    options = [f"--override_module=rules_cuda={rules}"]
    program = world.program(7, ROOT / ".venv-dev")
    with world.bazel(program, tmp_path / "out", tree / "tests/cuda", network) as bazel:
        found = bazel.run("query", *options, "tests(//...)").stdout.split()
        assert found == [f"//:{unit.stem}" for unit in UNITS]
        done = bazel.run("test", *options, "--symlink_prefix=/", "//:silu_mul", check=False)
    if Path("/dev/nvidiactl").exists():
        assert done.returncode == 0
    else:
        assert done.returncode == 3
        assert "no CUDA device, so nothing was tested: " in done.stdout + done.stderr


@pytest.mark.where_possible
def test_a_bazel_that_reads_no_modules_is_told_and_runs_no_other_tests(tmp_path):
    """It would go up to the source tree's own workspace, and its tests would pass."""
    with world.bazel(world.program(4, tmp_path), tmp_path / "out", FOLDER, []) as bazel:
        done = bazel.run("query", "tests(//...)", check=False)
    assert done.returncode != 0
    assert "the CUDA unit tests need Bazel 7.4.1 or newer" in done.stderr
    assert done.stdout == ""
