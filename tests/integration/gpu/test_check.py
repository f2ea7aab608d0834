"""The script for a day with a GPU, on the software GPU: a carried folder is made, run, and its JSON is whole."""

import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pih_steps import cubin
from tests.support import simgpu
from tests.support.program import ROOT
from tests.support.waiting import PATIENCE, until

sys.path[:0] = [str(ROOT), *(str(path) for path in ROOT.glob("plugins/*/*"))]


LINE = "'./gpu: 1/tools/gpu/check.sh' --tiny"  # what to type beside the folder


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """The folder that a build host makes, where it is asked to, by a name that no search path and no word can hold."""
    folder = tmp_path_factory.mktemp("carried")
    command = [ROOT / "tools/gpu/pack", "gpu: 1", "--tiny"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["gpu: 1"]
    assert done.stdout.splitlines()[-1] == f"carry 'gpu: 1' to the machine, then there: {LINE}"
    return folder / "gpu: 1"


@pytest.fixture(scope="module")
def software_gpu(carried, tmp_path_factory):
    """Environment in which the carried cubin runs on the software GPU."""
    from dataclasses import asdict

    from tools.gpu.deployments import TINY, both

    folder = tmp_path_factory.mktemp("simgpu")
    modules = folder / "modules"
    modules.mkdir()
    for deployment in both(TINY):
        bindings = [asdict(binding) for binding in deployment.lowered("kernels/cuda", "sm_89").bindings]
        code = carried / f"cubins/{deployment.name}-sm_89/pack.cubin"
        module = modules / f"{hashlib.sha256(code.read_bytes()).hexdigest()}.so"
        module.symlink_to(simgpu.module(folder, cubin.source(bindings)))
    return {"LD_LIBRARY_PATH": str(simgpu.driver(folder)), "PIH_SIMGPU": simgpu.settings(modules)}


def check(folder, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    return subprocess.run(
        [folder / "tools/gpu/check.sh", *arguments],
        env={**kept, "PIH_PYTHON": sys.executable, **environment}, capture_output=True, text=True, check=False,
        cwd="/",
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(carried, software_gpu, tmp_path_factory):
    output = tmp_path_factory.mktemp("result") / "result.json"
    done = check(carried, "--tiny", "--output", output, **software_gpu)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"right: {output}\n"
    return json.loads(output.read_bytes())


def test_every_way_is_right_and_every_entry_took_part(result):
    ways = ["prefill", "chunked prefill", "decode", "mixed batches", "across 256"]
    assert len(result["correctness"]) == 22
    for model in ("tiny", "tiny-int8"):
        *rows, entries = (row for row in result["correctness"] if row["model"] == model)
        assert [row["name"] for row in rows] == [*ways, *(f"{way}, graphs" for way in ways)]
        assert all(row["ok"] and row["kl"] <= 1e-3 for row in rows)
        assert entries["idle"] == []
        assert entries["entries"] > 15
    assert result["ok"] is True


def test_the_large_models_check_is_run_as_the_tiny_one_here(carried, software_gpu):
    """Nearer to its start: the software GPU takes too long for more."""
    path = [carried, *(carried / name for name in ("runtime", "resolver")), *carried.glob("plugins/*/*")]
    script = f"""
import json, sys
sys.path[:0] = {[str(part) for part in path]}
from tools.gpu import deployments, truth
print(json.dumps(list(truth.across(deployments.TINY, "sm_89", 64))))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", script],
        env={**os.environ, **software_gpu}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["model"], row["name"], row["ok"]) for row in rows] == [
        (model, name, True)
        for model in ("tiny", "tiny-int8")
        for name in ("across 64", "8 rows", "32 rows", "every kernel entry took part")
    ]
    assert all(row.get("kl", 0) < 1e-5 for row in rows)
    assert min(row.get("entries", 99) for row in rows) > 5


def test_the_table_has_every_batch_with_graphs_and_without(result):
    table = result["benchmark"]
    assert [(row["weights"], row["graphs"], row["batch"]) for row in table["decode"]] == list(
        itertools.product(("bf16", "int8"), (True, False), (1, 8, 32))
    )
    assert [row["weights"] for row in table["prefill"]] == ["bf16", "int8"]
    for row in (*table["decode"], *table["prefill"]):
        assert row["tokens_per_second"] > 0
    assert table["others"] == [{"name": "torch", "skipped": "--tiny"}]
    assert table["bytes_per_second"] is None  # a software GPU has no bandwidth to compare with
    assert result["device"] == {"name": "simgpu 0 (sm_89)", "sm": "sm_89", "cuda": "13.0"}
    assert result.keys() == {"schema", "machine", "device", "correctness", "ok", "benchmark", "error", "seconds"}
    assert result["error"] is None


def test_a_wrong_result_is_told_and_ends_with_1(carried, software_gpu, tmp_path):
    """The oracle gets other weights than the device. One model, without graphs, is enough to tell."""
    wrong = shutil.copytree(carried, tmp_path / "wrong")
    running = wrong / "tools/gpu/running.py"
    text = running.read_text()
    assert "deployment.checkpoint(seeded=True)" in text
    other = "replace(deployment, seed=1).checkpoint(seeded=True)"
    text = text.replace("deployment.checkpoint(seeded=True)", other)
    running.write_text(
        text.replace("from typing import Any\n", "from dataclasses import replace\nfrom typing import Any\n")
    )
    truth = wrong / "tools/gpu/truth.py"
    text = truth.read_text()
    assert "in both(deployment)" in text
    assert "in (False, True)" in text
    truth.write_text(text.replace("in both(deployment)", "in [deployment]").replace("in (False, True)", "in [False]"))
    done = check(wrong, "--tiny", **software_gpu)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert len(found["correctness"]) == 6
    assert all(row["kl"] > 1e-3 for row in found["correctness"][:5])
    assert found["ok"] is False
    assert found["benchmark"] == {"skipped": "results are wrong"}


def test_what_was_found_before_the_device_was_lost_is_kept(carried, software_gpu, tmp_path):
    """An error in the middle of correctness: rows that were judged, and why there are no more."""
    output = tmp_path / "result.json"
    lost = software_gpu["PIH_SIMGPU"] + ";fail=cuLaunchKernel:200=719"
    done = check(carried, "--tiny", "--output", output, **{**software_gpu, "PIH_SIMGPU": lost})
    assert done.returncode == 9
    assert done.stdout == f"not to its end: {output}\n"
    found = json.loads(output.read_bytes())
    assert "prefill" in [row["name"] for row in found["correctness"]]
    assert all(row["ok"] for row in found["correctness"])
    assert found["ok"] is False
    assert "CUDA_ERROR_LAUNCH_FAILED" in found["error"]
    assert found["benchmark"] == {"skipped": "correctness is not known"}


def test_the_line_that_pack_ends_with_is_one_to_type(carried, tmp_path):
    """It reaches the check, which finds no driver."""
    environment = {**os.environ, "PIH_PYTHON": sys.executable, "LD_LIBRARY_PATH": str(tmp_path)}
    command = ["sh", "-c", LINE]
    done = subprocess.run(command, cwd=carried.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert done.stderr.startswith("check.sh: no NVIDIA driver")


def test_a_folder_of_the_tiny_model_alone_is_told_before_anything_runs(carried, software_gpu, tmp_path):
    done = check(carried, "--output", tmp_path / "result.json", **software_gpu)
    assert done.returncode == 9
    assert "check.sh: the folder has no cubins of qwen3-0.6b for sm_89 and sm_90\n  to fix: make one " in done.stderr
    assert "--tiny" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_torch_that_sees_no_gpu_is_told_before_anything_runs(carried, software_gpu, tmp_path_factory, tmp_path):
    whole = shutil.copytree(carried, tmp_path_factory.mktemp("whole") / "gpu")
    for cubins in list((whole / "cubins").iterdir()):  # as if of the large model too
        shutil.copytree(cubins, cubins.with_name(cubins.name.replace("tiny", "qwen3-0.6b")))
    done = check(whole, "--output", tmp_path / "result.json", **software_gpu)
    assert done.returncode == 9
    assert re.search(r"check\.sh: torch \S+ sees no GPU\n  to fix: .*--tiny", done.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["none/result.json", "folder"])
def test_an_output_that_cannot_be_written_is_told_before_anything_runs(carried, tmp_path, place):
    """Before the driver, even, of which there is none."""
    (tmp_path / "folder").mkdir()
    done = check(carried, "--tiny", "--output", tmp_path / place)
    assert done.returncode == 2
    assert done.stderr.startswith(f"check.sh: {tmp_path / place}: cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_time_is_for_the_own_measures_too():
    from tools.gpu import bench
    from tools.gpu.deployments import FULL

    found = {}
    bench.measured(found, FULL, "sm_89", 0, torch_too=False)
    assert len(found["decode"]) == 12
    assert len(found["prefill"]) == 2
    assert all(row["skipped"] == "no time is left" for row in (*found["decode"], *found["prefill"]))


def test_no_driver_and_no_cubins_are_told(carried, software_gpu, tmp_path):
    done = check(carried, "--tiny", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 9
    assert done.stderr.startswith("check.sh: no NVIDIA driver: libcuda.so.1")
    assert "Traceback" not in done.stderr
    empty = shutil.copytree(carried, tmp_path / "empty", ignore=shutil.ignore_patterns("cubins"))
    done = check(empty, "--tiny", **software_gpu)
    assert done.returncode == 9
    assert "no cubins are here" in done.stderr


def test_another_gpu_is_told(carried, software_gpu):
    other = software_gpu["PIH_SIMGPU"] + ";devices=sm_75:16000000000"
    done = check(carried, "--tiny", **{**software_gpu, "PIH_SIMGPU": other})
    assert done.returncode == 9
    assert "simgpu 0 (sm_75) is sm_75" in done.stderr
    assert "run it on a GPU of sm_89 or sm_90" in done.stderr


@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_a_python_without_what_is_needed_is_told_after_slips_of_the_command_line(carried, tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    for arguments, code, said in (
        (["--tiny"], 9, f"check.sh: {sys.executable} has no {module}\n  to fix: install it, or set PIH_PYTHON"),
        (["--help"], 0, "usage: check.sh"),
        (["--bogus"], 2, "usage: check.sh"),
        (["--seconds", "-3"], 2, "usage: check.sh"),
    ):
        done = check(carried, *arguments, PYTHONPATH=str(tmp_path))
        assert done.returncode == code, arguments
        assert (done.stdout or done.stderr).startswith(said), arguments


@pytest.mark.parametrize("python", ["/none/python3", "python-that-is-not-there"])
def test_a_python_that_is_not_there_is_told(carried, python):
    done = check(carried, "--help", PIH_PYTHON=python)
    assert done.returncode == 9
    assert done.stderr == f"check.sh: there is no {python}; set PIH_PYTHON to Python 3.11 or newer\n"


def test_help_and_guide_say_the_same_of_the_tiny_model(carried):
    assert "measure the tiny model instead" in check(carried, "--help").stdout
    assert "`--tiny` measures the tiny model instead of" in (ROOT / "docs/howto/gpu-check.md").read_text()


def test_torchs_decoder_steps_on_the_cpu(monkeypatch):
    """What is compared with computes something: the same shapes, on the CPU."""
    torch = pytest.importorskip("torch")
    from tools.gpu import torch_decoder
    from tools.gpu.deployments import TINY

    monkeypatch.setattr(torch_decoder, "DEVICE", "cpu")
    logits = torch_decoder._step(TINY.config(), 3, 5, 32)()
    assert logits.shape == (3, 512)
    assert bool(torch.isfinite(logits).all())


def test_a_folder_that_cannot_be_made_is_told_and_nothing_is_left(tmp_path):
    """No such place, one that is taken, and a disk without room: no file may be larger than a few kilobytes."""
    pack = str(ROOT / "tools/gpu/pack")
    (tmp_path / "taken").mkdir()
    small = ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", pack]
    for command, output, code, said in (
        ([pack], "/proc/none/gpu", 2, "/proc/none/gpu: No such file or directory"),
        ([pack], tmp_path / "taken", 2, f"{tmp_path}/taken: it is there already"),
        (small, tmp_path / "gpu", 9, f"{tmp_path}/gpu: File too large\n  to fix: make room on its disk"),
    ):
        done = subprocess.run([*command, output, "--tiny"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(f"tools/gpu/pack: {said}")
        assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_found_before_a_signal_is_kept(carried, software_gpu, tmp_path, tmp_path_factory, number):
    """The signal comes while the first kernel is launched."""
    output, hold = tmp_path / "result.json", tmp_path_factory.mktemp("hold") / "hold"
    hold.touch()
    command = [carried / "tools/gpu/check.sh", "--tiny", "--output", output]
    environment = {**os.environ, "PIH_PYTHON": sys.executable, **software_gpu}
    environment["PIH_SIMGPU"] += f";hold={hold}"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    until(lambda: "/module-" in Path(f"/proc/{process.pid}/maps").read_text() or process.poll() is not None)
    process.send_signal(number)
    hold.unlink()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in err) == (9, False)
    assert out == f"not to its end: {output}\n"
    said = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert json.loads(output.read_bytes())["error"] == said
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_signal_before_anything_is_found_leaves_nothing(carried, software_gpu, tmp_path, tmp_path_factory):
    """While torch is loaded, which takes longer than the driver."""
    own = tmp_path_factory.mktemp("own")
    (own / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch.storage': signal.raise_signal(signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = check(carried, "--tiny", "--output", tmp_path / "result.json", PYTHONPATH=str(own), **software_gpu)
    assert (done.returncode, done.stdout) == (9, "")
    assert done.stderr.endswith("check.sh: ended by SIGTERM\n")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", ["-5", "nan", "inf"])
def test_the_time_is_a_number_of_seconds(carried, software_gpu, seconds):
    done = check(carried, "--tiny", "--seconds", seconds, **software_gpu)
    assert (done.returncode, "takes a number of seconds" in done.stderr) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pack_that_is_broken_off_leaves_nothing(tmp_path, number):
    command = [ROOT / "tools/gpu/pack", tmp_path / "gpu", "--tiny"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: list(tmp_path.glob(".gpu.*/new/cubins/*")) or process.poll() is not None)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert not list(tmp_path.iterdir())
