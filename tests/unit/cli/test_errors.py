"""Failures of the command line, in words and as JSON."""

import errno
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pih import cli
from pih.build import check
from pih.build.compare import Difference
from pih_runtime import errors
from tests.support.waiting import PATIENCE
from tests.unit.trust import made

ROOT = Path(__file__).parents[3]


def failed(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["pih", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_a_failure_in_words_and_as_one_line_of_json(capsys, monkeypatch, tmp_path):
    missing = str(tmp_path / "none.toml")
    code, out, err = failed(capsys, monkeypatch, "lock", "--profile", missing)
    assert (code, out) == (3, "")
    assert err.startswith(f"pih: error: {missing}: cannot read the profile")
    code, out, err = failed(capsys, monkeypatch, "--json-errors", "lock", "--profile", missing)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert json.loads(err) == {
        "error": "ProfileError",
        "exit_code": 3,
        "what": "cannot read the profile: No such file or directory",
        "where": missing,
        "fix": "give the path of a profile (TOML)",
    }


@pytest.mark.parametrize(
    ("words", "near"),
    [(("buld",), " Did you mean 'build'?"), (("catalog", "shw"), " Did you mean 'show'?"), (("xyzzy",), "")],
)
def test_a_command_that_is_none_names_the_nearest(capsys, monkeypatch, words, near):
    code, _, err = failed(capsys, monkeypatch, *words)
    assert (code, err.splitlines()[-1]) == (2, f"Error: No such command {words[-1]!r}.{near}")


@pytest.mark.parametrize("value", ["nan", "-nan", "NaN"])
def test_nan_is_no_temperature(capsys, monkeypatch, value):
    words = ("run", "--profile", "x", "--prompt", "Hi", f"--temperature={value}")
    code, _, err = failed(capsys, monkeypatch, *words)
    assert (code, "'--temperature': nan is not a number" in err) == (2, True), err


@pytest.mark.parametrize("option", ["--prompt", "--system"])
def test_bytes_that_are_no_text_are_no_message(capsys, monkeypatch, option):
    code, _, err = failed(capsys, monkeypatch, "run", "--profile", "x", "--prompt", "Hi", option, "a\udcff")
    assert (code, f"'{option}': not UTF-8 from character 2 on" in err) == (2, True), err


def test_a_pipe_is_no_file_of_weights(capsys, monkeypatch, tmp_path):
    """Nobody would ever have read it to its end."""
    os.mkfifo(tmp_path / "pipe")
    words = ("serve", "--profile", str(ROOT / "profiles/qwen3-cpu.toml"), "--weights", str(tmp_path / "pipe"))
    code, _, err = failed(capsys, monkeypatch, *words)
    assert (code, "pipe is no plain file" in err) == (2, True), err


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--bad"], "pih"),
        (["nothing"], "pih"),
        (["build", "--frofile", "x"], "pih build"),
        (["build"], "pih build"),
        (["build", "--profile", "x", "--jobs", "0"], "pih build"),
    ],
)
def test_slips_on_the_command_line_are_json_too(capsys, monkeypatch, arguments, where):
    code, _, err = failed(capsys, monkeypatch, "--json-errors", *arguments)
    said = json.loads(err)
    assert code == said["exit_code"] == 2
    assert (said["error"], said["where"], said["fix"]) == ("UsageError", where, f"{where} --help")
    assert said["what"]


def test_the_option_counts_before_the_command_only(capsys, monkeypatch):
    code, _, err = failed(capsys, monkeypatch, "build", "--json-errors")
    assert code == 2
    assert "No such option" in err


def test_help_and_version_are_no_failures(capsys, monkeypatch):
    for arguments in (["--help"], ["--json-errors", "why", "--help"], ["--version"]):
        code, out, err = failed(capsys, monkeypatch, *arguments)
        assert not code
        assert out
        assert not err


def test_every_class_of_failure_has_its_own_exit_code():
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PihError)]
    codes = [kind.exit_code for kind in kinds if kind is not errors.PihError]
    assert sorted(codes) == sorted(set(codes)) == list(range(2, 10))


def stuck(folder):
    """A profile whose lock's place is taken by a folder."""
    lock = folder / "p.lock.json"
    lock.mkdir()
    text = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text()
    (folder / "p.toml").write_text(text.replace("file:../models", f"file:{ROOT}/models"))
    return ["lock", "--profile", str(folder / "p.toml")], str(lock)


SLIPS = {
    "a lock that is a folder": stuck,
    "a new plugin where nothing can be": lambda _: (
        ["plugin", "new", "--kind", "health", "x", "--output", "/proc/foo"],
        "/proc/foo",
    ),
    "an archive that is a folder": lambda folder: (
        ["catalog", "sign", str(made.plugin(folder / "x")), "--key", str(key(folder)), "--output", str(folder)],
        str(folder),
    ),
}  # fmt: skip


def key(folder):
    made.key(folder)
    return folder / "key.pem"


@pytest.mark.parametrize("make", SLIPS.values(), ids=SLIPS)
def test_a_path_that_cannot_be_what_it_is_given_for_is_a_slip(capsys, monkeypatch, tmp_path, make):
    monkeypatch.setenv("PIH_STORE", str(tmp_path / "store"))
    arguments, where = make(tmp_path)
    code, _, err = failed(capsys, monkeypatch, "--json-errors", *arguments)
    said = json.loads(err.splitlines()[-1])
    assert (code, said["error"], said["where"]) == (2, "UsageError", where)


@pytest.mark.parametrize("command", [["catalog", "add"], ["catalog", "verify"], ["plugin", "check"]])
def test_a_path_that_is_not_there_is_the_same_slip_everywhere(capsys, monkeypatch, tmp_path, command):
    code, _, err = failed(capsys, monkeypatch, *command, str(tmp_path / "none"))
    assert code == 2
    assert "does not exist" in err


def test_a_full_disk_is_the_hosts_state_and_names_the_file(capsys, monkeypatch, tmp_path):
    made.plugin(tmp_path / "x")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    arguments = ["catalog", "sign", str(tmp_path / "x"), "--key", str(key(tmp_path))]
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        code, _, err = failed(capsys, monkeypatch, "--json-errors", *arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = json.loads(err)
    assert (code, said["where"]) == (9, str(tmp_path / "x" / "plugin.toml.sig"))
    assert said["fix"] == "make room on its disk, and try again"


@pytest.mark.parametrize(
    ("number", "code", "fix"),
    [
        (errno.ENOSPC, 9, "make room on its disk"),
        (errno.EACCES, 9, "give access"),
        (errno.E2BIG, 9, "see what the host lacks"),
        (errno.ENOTDIR, 2, "give another path"),
    ],
)
def test_what_the_system_refuses_has_the_words_for_it(capsys, monkeypatch, number, code, fix):
    def refused(*_, **__):
        raise OSError(number, os.strerror(number), "there")

    monkeypatch.setattr("pih.profile.load", refused)
    ended, _, err = failed(capsys, monkeypatch, "lock", "--profile", "x.toml")
    assert ended == code
    assert f"there: {os.strerror(number)}\n  to fix: {fix}" in err


def test_a_profile_whose_name_no_lock_can_hold(capsys, monkeypatch, tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.toml")
    path.write_text("")
    code, _, err = failed(capsys, monkeypatch, "--json-errors", "lock", "--profile", str(path))
    assert (code, json.loads(err)["what"]) == (3, "its name is not UTF-8")


@pytest.mark.parametrize("arguments", [["--help"], ["catalog", "list"]])
def test_a_reader_that_goes_away_ends_it_as_sigpipe_would(arguments, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pih", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def program(redirection, *arguments, **environment):
    """The program with its streams as a shell opens them; exit code, stdout and stderr."""
    line = f'exec "$@" {redirection}'
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "pih", *map(str, arguments)]
    own = os.environ | {"PYTHONUNBUFFERED": ""} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    return done.returncode, done.stdout, done.stderr


LOCK = ROOT / "profiles" / "smollm2-cpu.lock.json"
FULL = "pih: error: the output: No space left on device\n  to fix: make room on its disk, and try again\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["diff", LOCK, LOCK]])
def test_an_output_without_room_is_no_gate(arguments):
    assert program(">/dev/full", *arguments) == (9, "", FULL)


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "<&- >&- 2>&-", "<&-"])
def test_a_stream_that_is_closed_takes_nothing(redirection, tmp_path):
    code, _, err = program(redirection, "diff", LOCK, LOCK)
    assert (code, err) == (0, "")
    profile = tmp_path / "closed.toml"
    text = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text()
    profile.write_text(text.replace("file:../models", f"file:{ROOT}/models"))
    assert program(redirection, "lock", "--profile", profile, PIH_STORE=str(tmp_path / "store"))[0] == 0
    before = profile.with_suffix(".lock.json").read_bytes()
    assert program("", "lock", "--profile", profile, PIH_STORE=str(tmp_path / "store"))[0] == 0
    assert profile.with_suffix(".lock.json").read_bytes() == before  # no line of the program's went into a file


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_words_that_nobody_takes_leave_the_exit_code(redirection):
    assert program(redirection, "nothing")[0] == 2
    assert program(redirection, "lock", "--profile", "none.toml")[0] == 3


def test_a_defect_has_a_traceback_and_is_no_gate(capsys, monkeypatch):
    def defective():
        raise LookupError("nobody thought of this")

    monkeypatch.setattr(cli, "main", defective)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("pih", run_name="__main__")
    assert ended.value.code == 70
    assert "nobody thought of this" in capsys.readouterr().err


WAITS = """
import signal, sys, tempfile, time
from pih import cli
def waiting():
    with tempfile.TemporaryDirectory():
        print("here", flush=True)
        time.sleep(600)
cli.main = waiting
import runpy
runpy.run_module("pih", run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_leaves_nothing(tmp_path, number):
    own = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, env=own) as run:
        assert run.stdout.readline() == b"here\n"
        assert list(tmp_path.iterdir())
        run.send_signal(number)
        assert run.wait(PATIENCE) == 128 + number
    assert not list(tmp_path.iterdir())


def test_what_is_to_outlive_its_terminal_does(tmp_path):
    own = os.environ | {"TMPDIR": str(tmp_path)}
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=own) as run:
        assert run.stdout.readline() == b"here\n"
        run.send_signal(signal.SIGHUP)
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE) == 128 + signal.SIGTERM


def test_an_interrupt_ends_with_its_own_code(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pih.profile.load", interrupted)
    code, _, err = failed(capsys, monkeypatch, "lock", "--profile", "x.toml")
    assert code == 130
    assert "Traceback" not in err


def test_a_step_that_is_not_pure_is_a_failure_like_others(capsys, monkeypatch, tmp_path):
    place = Difference("plan.json", 7, "one has more")
    findings = [check.Finding("plan", place, inherited=False), check.Finding("image", place, inherited=True)]
    monkeypatch.setenv("PIH_STORE", str(tmp_path))
    monkeypatch.setattr(check, "again", lambda *_: findings)
    monkeypatch.setattr("pih.build.embedded.build", lambda *_, **__: None)
    profile = str(ROOT / "profiles" / "smollm2-cpu.toml")
    code, out, err = failed(capsys, monkeypatch, "--json-errors", "build", "--profile", profile, "--check")
    said = json.loads(err.splitlines()[-1])
    assert code == said["exit_code"] == 7
    assert said["what"] == "not the same bytes the second time: plan"
    assert "plan: plan.json differs at byte 7" in out
