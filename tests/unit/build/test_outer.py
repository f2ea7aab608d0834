"""Running the tool of an outer builder."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pih.build import nix, outer
from pih_runtime.errors import BuildError
from tests.support.waiting import PATIENCE, runs, until

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "Tool"
# Runs a program of its own, as Bazel and Nix do, and says much while it ends.
TOOL = """#!{sh}
trap 'kill $child; i=0; while [ $i -lt 3000 ]; do echo "a line that fills the pipe of whoever reads no more" >&2
i=$((i + 1)); done; exit 1' TERM
{sleep} 600 &
child=$!
echo $$ >{folder}/pids; echo $child >>{folder}/pids; {mv} {folder}/pids {folder}/running
wait
"""
RUNS = """
import signal, sys
from pathlib import Path
from pih.build import outer

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
outer.run([sys.argv[1]], list, environment={}, package="Tool")
"""


@pytest.fixture
def tool(tmp_path):
    def written(script):
        path = tmp_path / "tool"
        path.write_text(script)
        path.chmod(0o755)
        return str(path)

    return written


def test_what_it_wrote_is_told(tool):
    path = tool("#!/bin/sh\nprintf 'out\\377'; printf 'err\\377\\n' >&2; exit 3\n")
    assert outer.run([path], list, environment={}, package=PACKAGE) == (3, "out\ufffd", ["err\ufffd\n"])


def test_one_that_writes_much_at_once_does_not_wait_for_its_reader(tool):
    path = tool("#!/bin/sh\ni=0; while [ $i -lt 9999 ]; do echo 0123456789012345; i=$((i + 1)); done\n")
    assert len(outer.run([path], list, environment={}, package=PACKAGE)[1]) == 9999 * 17


def test_one_that_cannot_be_started(tool, tmp_path):
    with pytest.raises(BuildError, match="is not installed") as caught:
        outer.run([str(tmp_path / "none")], list, environment={}, package=PACKAGE)
    assert caught.value.fix == "install Tool, or build with the embedded builder"
    with pytest.raises(BuildError, match="cannot be started: Exec format error"):
        outer.run([tool("no program")], list, environment={}, package=PACKAGE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_end_ends_it_with_all_that_it_runs(tool, tmp_path, number):
    path = tool(TOOL.format(sh=shutil.which("sh"), sleep=shutil.which("sleep"), mv=shutil.which("mv"), folder=tmp_path))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/resolver:{ROOT}/runtime"}
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS, path], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until(lambda: (tmp_path / "running").exists() or process.poll() is not None)
    process.send_signal(number)
    assert process.wait(PATIENCE) != 0
    for pid in (tmp_path / "running").read_text().split():  # a process closes its pipes shortly before it is gone
        until(lambda pid=pid: not runs(pid))


def test_a_name_is_of_the_lock_and_the_checkout(tmp_path):
    names = {
        outer.name("robot", tmp_path / lock, tmp_path / tree)
        for lock in ("a.json", "b.json")
        for tree in ("one", "two")
    }
    assert len(names) == 4
    assert outer.name("robot", tmp_path / "a.json", tmp_path) == outer.name("robot", tmp_path / "x/../a.json", tmp_path)


def test_two_do_not_hold_the_same_place(tmp_path):
    with outer.alone(tmp_path / "new/place"):
        waits = (
            "import sys; from pathlib import Path; from pih.build import outer\nwith outer.alone(Path(sys.argv[1])): 0"
        )
        command = [sys.executable, "-c", waits, str(tmp_path / "new/place")]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/resolver:{ROOT}/runtime"}
        second = subprocess.Popen(command, env=environment)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(1.5)
    assert second.wait(PATIENCE) == 0


@pytest.mark.parametrize("printed", ["", "nonsense", "[1]", '[{"path": "x"}]'])
def test_nix_that_does_not_say_what_it_was_asked(tmp_path, printed):
    (tmp_path / "nix-instantiate").write_text(f"#!{shutil.which('sh')}\necho '{printed}'\n")
    (tmp_path / "nix-instantiate").chmod(0o755)
    with pytest.raises(BuildError, match="did not say"):
        nix._held(tmp_path / "x.lock.json", tmp_path, {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("the group 'nixbld' specified in 'build-users-group' does not exist", True),
        ("could not set permissions on '/nix/var/nix/profiles/per-user' to 755: Operation not permitted", True),
        ("builder for '/nix/store/x.drv' failed with exit code 1", False),
    ],
)
def test_a_nix_that_cannot_build_on_this_host_is_told_what_to_write_where(tmp_path, said, told):
    (tmp_path / "nix-instantiate").write_text(f'#!{shutil.which("sh")}\necho "error: {said}" >&2\nexit 1\n')
    (tmp_path / "nix-instantiate").chmod(0o755)
    with pytest.raises(BuildError, match=said) as caught:
        nix._held(tmp_path / "x.lock.json", tmp_path, {"PATH": str(tmp_path)})
    assert ("docs/howto/build-with-nix.md" in caught.value.fix) == told
