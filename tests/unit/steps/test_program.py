"""`python -I -B pih_steps NAME SPEC.json`, as a runner calls it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pih_runtime.canonical import sealed
from pih_runtime.errors import BuildError
from pih_steps import __main__ as program
from pih_steps import kernels, plugins
from pih_steps import spec as specification
from pih_steps.lower import files

STEPS = Path(program.__file__).parent


def _write(folder, **changes):
    data = {"params": {}, "artifacts": {}, "trees": {}, "steps": {}, "tools": [], "output": str(folder / "out")}
    path = folder / "spec.json"
    path.write_text(json.dumps(data | changes))
    return path


def _run(*arguments, program=STEPS, **process):
    # -B: Python keeps the bytecode of a folder's __main__ before that can say a word
    command = [sys.executable, "-I", "-B", str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={}, **process)


def _sources(folder):
    package = folder / "pih_runtime"
    package.mkdir()
    for name in ("__init__", "launcher"):
        (package / f"{name}.py").write_text("x = 1\n")
    (folder / "lock.json").write_text(json.dumps(sealed({})))
    return {
        "params": {"packages": {"package": "pih"}},
        "trees": {"package": str(package), "lock": str(folder / "lock.json")},
    }


def test_a_step_runs_from_any_folder_and_leaves_no_bytecode(tmp_path):
    tree = tmp_path / "tree"  # one that no other process imports from
    for source in (STEPS, STEPS.parents[1] / "runtime"):
        place = tree / source.relative_to(STEPS.parents[1])
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    path = _write(tmp_path, **_sources(tmp_path))
    result = _run("app", path, program=tree / "resolver/pih_steps", cwd="/")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "out" / "layer.tar.gz").is_file()
    assert not list(tree.rglob("*.pyc"))


def test_its_own_modules_do_not_hide_others(tmp_path):
    """`tar` or `base` in a tool must be the tool's own."""
    assert str(STEPS) not in {str(Path(entry).resolve()) for entry in sys.path}
    code = f"import runpy, sys; sys.argv = ['pih_steps']; runpy.run_path({str(STEPS)!r}); import tar"
    result = subprocess.run([sys.executable, "-IBc", code], capture_output=True, text=True, check=False)
    assert "No module named 'tar'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "a step takes its name"),
        (["nonsense", "SPEC"], 2, "no build step 'nonsense'"),
        (["app", "absent.json"], 7, "absent.json: cannot read"),
        (["app", "SPEC"], 7, "no tree 'lock'"),
    ],
)
def test_a_mistake_is_one_message_and_its_exit_code(tmp_path, arguments, code, words):
    path = _write(tmp_path)
    result = _run(*[str(path) if argument == "SPEC" else argument for argument in arguments])
    assert result.returncode == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"params": 1}', '{"params": {}, "artifacts": 3}'])
def test_what_is_no_specification_is_refused(tmp_path, text):
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(BuildError, match="not a step specification"):
        specification.load(path)


def test_tools_are_importable_while_the_step_runs(tmp_path, monkeypatch):
    wheel = tmp_path / "tool-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pih_test_tool.py", "VALUE = 42\n")
        archive.writestr("pih_test_step.py", "import pih_test_tool\ndef run(spec): spec.params['got'] = 1\n")
    monkeypatch.setitem(program.STEPS, "plan", "pih_test_step")
    spec = specification.load(_write(tmp_path, tools=[str(wheel)]))
    before = list(sys.path)
    program.run("plan", spec)
    assert spec.params == {"got": 1}
    assert sys.path == before


def test_a_broken_tool_is_named(tmp_path):
    (tmp_path / "tool.whl").write_bytes(b"no zip")
    spec = specification.load(_write(tmp_path, tools=[str(tmp_path / "tool.whl")]))
    with pytest.raises(BuildError, match=r"tool\.whl: not a wheel"):
        program.run("app", spec)


@pytest.mark.parametrize(
    ("step", "params", "missing"),
    [
        ("app", {"packages": {"gone": "pih"}}, "tree 'gone'"),
        ("archive", {}, "input from step 'image'"),
        ("kernels", {"isa": "x86-64-v3", "bindings": []}, "artifact 'ziglang'"),
        ("plan", {"kernels": "kernels/cpu", "isa": "x86-64-v3"}, "tree 'kernels/cpu'"),
        ("weights", {}, "input from step 'plan'"),
        ("wheels", {}, "input from step 'imports'"),
        ("wheels", {"plugins": {"plugin/x": {"tree": ""}}}, "artifact 'plugin/x'"),
    ],
)
def test_an_input_that_is_missing_is_named(tmp_path, step, params, missing):
    trees = _sources(tmp_path)["trees"] if step == "app" else {}
    with pytest.raises(BuildError, match=f"the step has no {missing}"):
        program.run(step, specification.load(_write(tmp_path, params=params, trees=trees)))


@pytest.mark.parametrize("inner", ["..", "../x", "a/../../x", "/etc"])
def test_a_tree_of_a_plugin_stays_in_its_archive(tmp_path, inner):
    with tarfile.open(tmp_path / "plugin.tar", "w"):
        pass
    artifacts = {"plugin/x": str(tmp_path / "plugin.tar")}
    params = {"plugins": {"plugin/x": {"tree": inner}}}
    with pytest.raises(BuildError, match="no path inside a plugin"):
        program.run("wheels", specification.load(_write(tmp_path, params=params, artifacts=artifacts)))


def _full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/file")


def test_a_full_disk_is_no_fault_of_a_file(tmp_path, monkeypatch, capsys):
    wheel = tmp_path / "tool.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("module.py", "")
    with tarfile.open(tmp_path / "plugin.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
    monkeypatch.setattr(zipfile.ZipFile, "extractall", _full)
    for use in (program.unpack_tool, kernels.unpack_zig):
        with pytest.raises(OSError, match="No space left"):
            use(wheel, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", _full)
        with pytest.raises(OSError, match="No space left"):
            plugins.unpack(tmp_path / "plugin.tar", tmp_path / "plugin")
    with pytest.raises(OSError, match="No space left"), files.opened({"artifact": "a"}, {"a": wheel}, {}):
        _full()
    assert program.main(["app", str(_write(tmp_path, tools=[str(wheel)]))]) == 7
    said = capsys.readouterr().err
    assert "/full/file" in said
    assert "No space left" in said
    assert "not a wheel" not in said


@pytest.mark.parametrize("path", ["..", "a/../../x", "/etc/passwd"])
def test_a_file_of_a_tree_stays_in_it(tmp_path, path):
    with pytest.raises(BuildError, match="leaves its tree"):
        files.read({"tree": "a", "path": path}, {}, {"a": tmp_path})
