"""PIH's own plugins pass the suite, by the command and in pytest too."""

import json
import subprocess
import sys

import pytest

from pih.conformance import new
from pih_runtime.errors import UsageError
from tests.conformance.checks import PACKAGE, bring, found, outcomes, pack
from tests.support.disk import small_disk
from tests.support.program import ROOT, pih


def test_a_full_disk_leaves_no_half_of_a_new_plugin(tmp_path):
    with small_disk(2048), pytest.raises(OSError, match="File too large") as failed:
        new.write("backend", "made", tmp_path / "made", ROOT)
    assert failed.value.filename == str(tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
    new.write("backend", "made", tmp_path / "made", ROOT)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_name_of_pih_s_own_is_refused(tmp_path):
    with pytest.raises(UsageError, match="backend/cpu is a plugin of PIH's own"):
        new.write("backend", "cpu", tmp_path / "cpu", ROOT)


@pytest.mark.parametrize("plugin", ["kernels/cpu", "backend/cpu", "a new pack"])
def test_packs_and_the_backend_over_one_pass(plugin, tmp_path):
    checks = outcomes(pack(tmp_path / "pack") if plugin == "a new pack" else ROOT / "plugins" / plugin, bring)
    assert not [check for check in checks.values() if check.outcome != "passed"]
    assert len(checks) > 80


def test_a_kernel_that_is_wrong_fails_alone(tmp_path):
    wrong = pack(tmp_path / "pack", lambda text: text.replace("/ D + from_bits(EPS)", "/ D"))
    failed = {check.name for check in outcomes(wrong, bring).values() if check.outcome == "failed"}
    assert failed
    assert all(name.startswith("op: rms_norm f32 ") and "reference" not in name for name in failed), failed


def test_kernels_that_do_not_compile_fail(tmp_path):
    wrong = pack(tmp_path / "pack", lambda text: text.replace("template <int D>", "tmplate <int D>", 1))
    check = found(wrong, "kernels compile", bring)
    assert check.outcome == "failed"
    assert "rms_norm.h" in check.detail


@pytest.mark.parametrize(
    "plugin", ["execution/continuous", "health/probe", "memory/paged", "model/llama", "model/qwen3", "model/text",
               "platform/linux", "storage/safetensors", "surface/openai", "backend/torch"]
)  # fmt: skip
def test_pih_s_other_plugins_pass(plugin):
    assert [check for check in outcomes(ROOT / "plugins" / plugin).values() if check.outcome == "failed"] == []


def test_the_command_writes_and_checks(tmp_path):
    folder = tmp_path / "my-npu"
    pih("plugin", "new", "--kind", "backend", "my-npu", "--output", folder)
    assert "checks passed, 0 skipped" in pih("plugin", "check", folder).stdout
    again = pih("plugin", "new", "--kind", "backend", "my-npu", "--output", folder, check=False)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    named = pih("plugin", "new", "--kind", "backend", "My_NPU", "--output", tmp_path / "other", check=False)
    assert named.returncode == 2
    (folder / "plugin.toml").write_text("id = 3\n")
    refused = pih("plugin", "check", folder, "--json", check=False)
    assert refused.returncode == 4
    assert json.loads(refused.stdout)[0]["outcome"] == "failed"


def test_the_suite_runs_in_pytest(made, tmp_path):
    """The plugin's checks alone, in a folder with tests of its own; beside files that are named."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_other.py").write_text("def test_of_one_s_own():\n    raise KeyError('other')\n")
    options = ["-q", "-p", "pih.conformance.pytest_plugin", "--pih-plugin", made, "-p", "no:cacheprovider"]
    paths = f"{ROOT}/resolver:{ROOT}/runtime"
    environment = {"PYTHONPATH": paths, "PIH_STORE": str(tmp_path / "store"), "PATH": "/usr/bin:/bin", "HOME": "/"}

    def run(*files):
        command = [sys.executable, "-m", "pytest", *options, "--basetemp", tmp_path / "base", *files]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    passed = run()
    assert passed.returncode == 0, passed.stdout + passed.stderr
    path = made / PACKAGE / "ops.py"
    path.write_text(path.read_text().replace(' + attrs["eps"])', " + 1e-30)"))
    failed = run("test_other.py")
    assert failed.returncode == 1
    assert "the report's mode allows" in failed.stdout
    assert "KeyError: 'other'" in failed.stdout
