"""The suite outlives whatever a plugin does to its process, and leaves nothing of it behind."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from pih.conformance import process, suite
from tests.conformance.checks import PACKAGE, START, found, nothing, outcomes
from tests.support.program import ROOT, pih

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
    writes = "".join(f"        os.write({stream}, b'x' * (1 << 20))\n" for stream in (1, 2))
    flood = f"    import os\n    for _ in range(100):\n{writes}"
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
