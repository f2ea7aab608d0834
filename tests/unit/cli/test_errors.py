"""Failures of the command line, in words and as JSON."""

import json
import sys
from pathlib import Path

import pytest

from pih import cli
from pih.build import check
from pih.build.compare import Difference
from pih_runtime import errors

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
