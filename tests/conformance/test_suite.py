# ruff: noqa: E501 - what is broken reads best in one line
"""The suite passes what keeps its contract, and fails each sort of plugin that does not."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pih.conformance import new, process, suite
from pih_runtime.errors import UsageError
from tests.support.artifacts import artifact
from tests.support.disk import small_disk
from tests.support.program import ROOT, pih

PACKAGE = "pih_backend_made"
START = "    backend = Backend("
# What is broken: (file, what it says, what it says then), and the check that must fail.
BROKEN = {
    "another core": ("plugin.toml", 'pih = ">=', 'pih = ">9.', "package"),
    "another ABI": ("plugin.toml", "abi = 1\nsummary", "abi = 2\nsummary", "package"),
    "unknown op in the report": ("plugin.toml", 'op = "silu_mul"', 'op = "silu"', "manifest"),
    "unknown key": ("plugin.toml", "summary =", "sumary =", "manifest"),
    "a source that is not there": ("plugin.toml", 'source = "ops.py"\ntemplate = "gather"', 'source = "shards.py"\ntemplate = "gather"', "package"),
    "a source of another's": ("plugin.toml", 'source = "ops.py"', 'source = "../../../etc/passwd"', "manifest"),
    "no source": ("plugin.toml", 'source = "ops.py"', 'source = ""', "manifest"),
    "no entry": ("plugin.toml", f'"{PACKAGE}:start"', f'"{PACKAGE}:begin"', "manifest"),
    "no memory of its own": ("plugin.toml", "host_bytes = 8000000", "host_bytes = 0", "package"),
    "a wheel that is not named": ("ops.py", "import math\n", "import math\n\nimport numpy\n", "package"),
    "another plugin's code": ("ops.py", "import math\n", "import math\n\nimport pih_backend_cpu\n", "package"),
    "not Python": ("batch.py", "@dataclass", "@@dataclass", "package"),
    "asks for what it does not require": (
        "__init__.py", START, f'    context.provider("memory.pages")\n{START}', "lifecycle: start and stop"
    ),
    "a thread is left": (
        "__init__.py", START, f"    import threading, time\n    threading.Thread(target=lambda: time.sleep(60), daemon=True).start()\n{START}",
        "lifecycle: start and stop",
    ),
    "a thread is left by the import": (
        "__init__.py", "\n\ndef start(", "\n\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\n\ndef start(",
        "lifecycle: start and stop",
    ),
    "a thread without a name is left by the import": (
        "__init__.py", "\n\ndef start(", "\n\nimport _thread, time\n_thread.start_new_thread(time.sleep, (60,))\n\n\ndef start(", "lifecycle: start and stop",
    ),
    "a thread is left by the first start alone": (
        "__init__.py", START, f"    import threading, time\n    global LATE\n    if 'LATE' not in globals():\n        LATE = threading.Thread(target=time.sleep, args=(60,), daemon=True)\n        LATE.start()\n{START}",
        "lifecycle: start and stop",
    ),
    "a thread is left by each step": (
        "backend.py", "        self._tickets += 1\n", "        self._tickets += 1\n        import threading, time\n        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
        "lifecycle: use leaves nothing behind",
    ),
    "a process is left": ("__init__.py", START, f"    import subprocess\n    subprocess.Popen(['sleep', '333'])\n{START}", "lifecycle: start and stop"),
    "a process is left by the import": ("__init__.py", "\n\ndef start(", "\n\n__import__('subprocess').Popen(['sleep', '333'])\n\n\ndef start(", "lifecycle: start and stop"),
    "a process is left that has ended": ("__init__.py", START, f"    import os\n    if not os.fork():\n        os._exit(0)\n{START}", "lifecycle: start and stop"),
    "a process is left that hides": (
        "__init__.py", START, f"    import os\n    if not (child := os.fork()):\n        os.setsid()\n        if os.fork():\n            os._exit(0)\n        os.execve('/bin/sleep', ['sleep', '333'], {{}})\n    os.waitpid(child, 0)\n{START}",
        "lifecycle: start and stop",
    ),
    "a process is left by a failed start": (
        "backend.py", "        self.plan = plan\n", "        self.plan = plan\n        import subprocess\n        self.child = subprocess.Popen(['sleep', '333'])\n", "lifecycle: tensor 1 cannot be had",
    ),
    "a process is left by each step": (
        "backend.py", "        self._tickets += 1\n", "        self._tickets += 1\n        import subprocess\n        subprocess.Popen(['sleep', '333'])\n",
        "lifecycle: use leaves nothing behind",
    ),
    "a process is left at the end": ("__init__.py", START, f"    __import__('atexit').register(__import__('subprocess').Popen, ['sleep', '333'])\n{START}", "end of the process"),
    "a signal is taken": ("__init__.py", START, f"    __import__('signal').signal(__import__('signal').SIGTERM, lambda *_: None)\n{START}", "lifecycle: signals, folder and umask are the worker's"),
    "a signal is taken by the import": ("__init__.py", "\n\ndef start(", "\n\n__import__('signal').signal(2, lambda *_: None)\n\n\ndef start(", "lifecycle: signals, folder and umask are the worker's"),
    "another folder": ("__init__.py", START, f"    __import__('os').chdir('/')\n{START}", "lifecycle: signals, folder and umask are the worker's"),
    "another umask": ("__init__.py", START, f"    __import__('os').umask(0o77)\n{START}", "lifecycle: signals, folder and umask are the worker's"),
    "a file is left": ("__init__.py", START, f"    global F\n    F = [*globals().get('F', []), open('/dev/null')]\n{START}", "lifecycle: start and stop"),
    "a thread is left by a failed start": (
        "backend.py", "        self.plan = plan\n",
        "        self.plan = plan\n        import threading\n        self.end = threading.Event()\n        threading.Thread(target=self.end.wait, daemon=True).start()\n",
        "lifecycle: tensor 1 cannot be had",
    ),
    "a second stop fails": ("backend.py", "        self._weights.clear()\n", "        del self._weights\n", "lifecycle: stop twice"),
    "one at a time": (
        "__init__.py", START, f"    global BUSY\n    if globals().get('BUSY'):\n        raise WorkerError('busy')\n    BUSY = True\n{START}",
        "lifecycle: two at once",
    ),
    "a failure swallowed": (
        "backend.py", "weights.tensor(weight.name))", "_given(weights, weight))", "lifecycle: tensor 1 cannot be had"
    ),
    "a failure renamed": ("__init__.py", '    context.provider("platform.host")', '    try:\n        context.provider("platform.host")\n    except WorkerError:\n        raise KeyError("host") from None', "lifecycle: platform.host cannot be had"),
    "a damaged plan": ("__init__.py", "    plan = plans.read(", "    __import__('json').loads((context.root / plans.NAME).read_bytes())\n    plan = plans.read(", "lifecycle: a damaged plan"),
    "a method lacks": ("backend.py", "def logits(", "def scores(", "contract: what it provides"),
    "memory is kept": (
        "backend.py", "        self._sampled = [-1]", "        KEPT.append(self._caches.copy())\n        self._sampled = [-1]",
        "memory: what is taken is what the plan asks for",
    ),
    "more memory than it says": (
        "backend.py", "        self._sampled = [-1]", "        self.more = b'x' * (200 << 20)\n        self._sampled = [-1]",
        "memory: what is taken is what the plan asks for",
    ),
    "memory taken at import": ("__init__.py", "\n\ndef start(", "\n\nHELD = b'x' * (100 << 20)\n\n\ndef start(", "memory: what is taken is what the plan asks for"),
    "memory taken at the first start": (
        "__init__.py", START, f"    global HELD\n    HELD = globals().get('HELD') or b'x' * (100 << 20)\n{START}",
        "memory: what is taken is what the plan asks for",
    ),
    "limits not checked": ("batch.py", '_within("positions", step.positions, 0, limits.context)', "", "limits: a bad step is an error"),
    "a page table of any width": ("batch.py", '_within("pages_per_seq", (step.pages_per_seq,)', '_within("pages_per_seq", ()', "limits: a bad step is an error"),
    "a ticket that stays good": ("backend.py", "return self._results.pop(ticket)", "return self._results.get(ticket)", "limits: a ticket is good once"),
    "anything is a ticket": ("backend.py", "        if not isinstance(ticket, int) or ticket not in self._results:\n", "        if ticket is None:\n            return []\n        if ticket not in self._results:\n", "limits: a ticket is good once"),
    "three steps in flight": ("backend.py", "if len(self._results) >= MOST_IN_FLIGHT:", "if False:", "limits: at most two steps are in flight"),
    "a third step ends the others": ("backend.py", '            raise WorkerError(f"{MOST_IN_FLIGHT} steps', '            self._results.clear()\n            raise WorkerError(f"{MOST_IN_FLIGHT} steps', "limits: at most two steps are in flight"),
    "a step after stop": (
        "backend.py", '        if self._stopped:\n            raise WorkerError("the backend has stopped")\n', "        if self._stopped:\n            self._results[0] = []\n            return 0\n",
        "limits: after stop nothing runs",
    ),
    "logits after stop": ("backend.py", '        self._arena = memoryview(b"")\n        self._logits = []\n', '        self._arena = memoryview(b"")\n', "limits: after stop nothing runs"),
    "one memory of last ids for all": (
        "backend.py", "        self._sampled = [-1] * plan.limits.seqs\n", "        self._sampled = globals().setdefault('SAMPLED', [-1] * plan.limits.seqs)\n", "limits: two backends keep to themselves"
    ),
    "the largest row lost": ("ops.py", "row[:] = table[token]", "row[:] = table[min(token, 18)]", "op: embed f32 [20,20]"),
    "eps forgotten": ("ops.py", ' + attrs["eps"])', " + 1e-30)", "op: rms_norm f32 20 columns, 1 groups"),
    "one group for all": ("ops.py", "range(0, len(source), size)", "range(0, size, size)", "op: rms_norm f32 64 columns, 4 groups"),
    "accumulate ignored": ("ops.py", 'if attrs["accumulate"]', "if not attrs", "op: linear f32 [32,96] accumulate"),
    "less precise than it says": (
        "ops.py", "sum(map(mul, own, row)) for row in weight", "round(sum(map(mul, own, row)), 2) for row in weight",
        "op: linear f32 [48,32]",
    ),
    "pairs swapped": ("ops.py", '== "half"', '!= "half"', "op: rope 64 columns, heads of 16, half"),
    "angles of another position": ("ops.py", "position * frequency", "(position + 1) * frequency", "op: rope_table f32 32 columns"),
    "the first layer's cache": ("memory.py", "(self.layer * 2 + side)", "(0 * 2 + 0)", "op: attention 2 heads, 1 kv heads of 16, cache f32"),
    "bf16 cut, not rounded": ("memory.py", "bit + 0x7FFF + (bit >> 16 & 1) >> 16", "bit >> 16", "op: kv_write 4 heads, 2 kv heads of 16, cache bf16"),
    "sees the future": ("ops.py", "range(step.positions[token] + 1)]", "range(step.positions[stop - 1] + 1)]", "op: attention 2 heads, 1 kv heads of 16, cache f32"),
    "overflow": ("ops.py", " if value > -700 else 0.0", "", "op: silu_mul 20 columns"),
    "rows in order": ("ops.py", "target[:] = x[row]", "target[:] = x[0]", "op: gather 20 columns"),
    "seed ignored": ("ops.py", "uniform(how.seed, position)", "uniform(0, position)", "op: sample 32 logits"),
    "min_p ignored": ("ops.py", "if weight >= how.min_p * weights[0]", "", "op: sample 96 logits"),
    "company counts": ("ops.py", 'attrs["scale"] * sum', 'attrs["scale"] * (1 + 1e-6 * len(q)) * sum', "op: rows do not depend on their company"),
    "a crash": ("ops.py", "        row[:] = table[token]", "        import os\n        os.abort()", "limits: a bad step is an error"),
    "leaves quietly": ("__init__.py", START, f"    import os\n    os._exit(0)\n{START}", "lifecycle: start and stop"),
    "leaves quietly at import": ("__init__.py", "\n\ndef start(", "\n\n__import__('os')._exit(0)\n\n\ndef start(", "lifecycle: start and stop"),
    "leaves quietly in a step": ("ops.py", "        row[:] = table[token]", "        __import__('os')._exit(0)", "limits: a bad step is an error"),
    "leaves quietly at the end": ("__init__.py", START, f"    __import__('atexit').register(__import__('os')._exit, 3)\n{START}", "end of the process"),
    "answers for the suite": ("__init__.py", START, f"    import os\n    for pipe in os.listdir('/proc/self/fd'):\n        if int(pipe) > 2:\n            os.write(int(pipe), b'x' * (2 << 20))\n{START}", "lifecycle: start and stop"),
    "a report of what it cannot do": ("ops.py", '    "silu_mul": silu_mul,\n', "", "op: silu_mul 20 columns"),
}  # fmt: skip
EXTRA = {
    "a failure swallowed": "\n\ndef _given(weights, weight):\n    try:\n        return weights.tensor(weight.name)\n"
    "    except Exception:\n        return memoryview(bytes(weight.nbytes))\n",
    "memory is kept": "\n\nKEPT = []\n",
}


def nothing(_artifact):
    raise AssertionError("no compiler is needed")


@pytest.fixture
def made(tmp_path):
    new.write("backend", "made", tmp_path / "made", ROOT)
    return tmp_path / "made"


def outcomes(folder, bring=nothing):
    return {check.name: check for check in suite.check(folder, ROOT, bring)}


def found(folder, name, bring=nothing):
    """The check of this name; those after it are not waited for."""
    with closing(suite.check(folder, ROOT, bring)) as made:
        names = []
        for check in made:
            if check.name == name:
                return check
            names.append(check.name)
    raise AssertionError(names)


def test_a_new_plugin_passes(made):
    checks = outcomes(made)
    assert {check.outcome for check in checks.values()} == {"passed"}, checks
    assert len(checks) > 40


@pytest.mark.parametrize("sort", BROKEN)
def test_a_broken_plugin_fails(made, sort):
    file, old, text, failing = BROKEN[sort]
    path = made / file if file == "plugin.toml" else made / PACKAGE / file
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, text) + EXTRA.get(sort, ""))
    check = found(made, failing)
    assert check.outcome == "failed"
    assert check.detail


HANGS = 15.0  # seconds: many times what the suite's process needs to start on a busy machine


def test_a_plugin_that_hangs_fails(made, monkeypatch):
    monkeypatch.setattr(process, "SECONDS", HANGS)
    path = made / PACKAGE / "__init__.py"
    path.write_text(path.read_text().replace(START, f"    while True:\n        pass\n{START}"))
    assert "does not end" in found(made, "lifecycle: start and stop").detail


LEFT = f"333.{os.getpid()}"  # seconds that nothing else here sleeps


def sleeping():
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(path.read_bytes())
    return [command for command in commands if LEFT.encode() in command]


@pytest.mark.parametrize(
    "then", ["", "        while True:\n            pass\n", "        os.abort()\n", "        os._exit(0)\n"]
)
def test_nothing_that_a_plugin_begets_outlives_its_checks(made, monkeypatch, then):
    """However it is begotten, and however the plugin ends, or is ended."""
    if "while" in then:
        monkeypatch.setattr(process, "SECONDS", HANGS)
    path = made / PACKAGE / "__init__.py"
    hidden = f"    if not os.fork():\n        os.setsid()\n        os.execve('/bin/sleep', ['sleep', '{LEFT}'], {{}})\n"
    plain = f"    import os, subprocess\n    subprocess.Popen(['sleep', '{LEFT}'])\n"
    path.write_text(path.read_text().replace(START, f"{plain}{hidden}{then}{START}"))
    assert found(made, "lifecycle: start and stop").outcome == "failed"
    assert sleeping() == []
    checks = outcomes(made)
    assert sleeping() == []
    if "while" not in then:
        assert "sleep, sleep" in checks["end of the process"].detail


def test_only_what_was_left_is_named(made):
    path = made / PACKAGE / "__init__.py"
    thread = "threading.Thread(target=time.sleep, args=(60,), daemon=True, name={!r}).start()"
    text = path.read_text().replace(
        "\n\ndef start(", f"\n\nimport threading, time\n{thread.format('first')}\n\n\ndef start("
    )
    path.write_text(text.replace(START, f"    {thread.format('second')}\n{START}"))
    assert found(made, "lifecycle: start and stop").detail == "1 threads are left by its import: first"
    path.write_text(
        text.replace(f"\n{thread.format('first')}", "").replace(START, f"    {thread.format('second')}\n{START}")
    )
    assert found(made, "lifecycle: start and stop").detail == "1 threads are left after stop: second"


def test_what_a_plugin_writes_is_no_answer(made):
    """Its native code's writing neither; however much, and without an end of the line."""
    path = made / PACKAGE / "__init__.py"
    flood = "    import os\n    for _ in range(100):\n        os.write(1, b'x' * (1 << 20))\n        os.write(2, b'x' * (1 << 20))\n"
    path.write_text(path.read_text().replace(START, f"{flood}{START}"))
    assert {check.outcome for check in outcomes(made).values()} == {"passed"}


def test_files_that_a_plugin_leaves_go_with_its_process(made, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setattr(process, "_PLACE", place)
        path = made / PACKAGE / "__init__.py"
        left = "    raise RuntimeError(__import__('tempfile').mkdtemp())\n"
        path.write_text(path.read_text().replace(START, f"{left}{START}"))
        assert f"{place}/pih-check-" in found(made, "lifecycle: start and stop").detail
        assert list(Path(place).iterdir()) == []


@pytest.mark.parametrize(
    ("program", "said"),
    [("/bin/true", "exit code 0 before its time"), ("/bin/echo", "is no check")],
)
def test_an_interpreter_that_makes_no_checks_fails(made, program, said):
    *_, last = suite.check(made, ROOT, nothing, program)
    assert (last.name, last.outcome) == ("its start", "failed")
    assert said in last.detail


def test_an_interpreter_that_is_not_there_is_a_slip_of_the_command(made):
    refused = pih("plugin", "check", made, "--python", "/nonexist", check=False)
    assert refused.returncode == 2
    assert "--python: /nonexist cannot be started: No such file or directory" in refused.stderr


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


def bring(_artifact):
    return artifact("wheel", "ziglang")


@pytest.mark.parametrize("plugin", ["kernels/cpu", "backend/cpu", "a new pack"])
def test_packs_and_the_backend_over_one_pass(plugin, tmp_path):
    checks = outcomes(pack(tmp_path / "pack") if plugin == "a new pack" else ROOT / "plugins" / plugin, bring)
    assert not [check for check in checks.values() if check.outcome != "passed"]
    assert len(checks) > 80


def pack(folder, text=lambda text: text):
    """PIH's own kernels as a pack from outside, with one source changed."""
    new.write("kernels", "made", folder, ROOT)
    path = folder / "kernels" / "rms_norm.h"
    before = path.read_text()
    path.write_text(text(before))
    return folder


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
