"""`pih lock` on a profile that was edited: what it says that moved, and why; and failures as JSON."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.program import PROFILE, ROOT, pih


@pytest.fixture
def profile(tmp_path):
    """A copy of the shipped profile and its lock, to edit."""
    for name in (PROFILE, PROFILE.replace(".toml", ".lock.json")):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path / Path(PROFILE).name


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_each_move_has_its_reason(profile):
    edited(profile, "context = 2048", "context = 1024")
    edited(profile, "health = true", "health = false")
    moved = json.loads(pih("lock", "--profile", profile, "--json").stdout)
    assert moved["changed"]
    why = {move["name"]: (move["before"], move["after"], move["why"]) for move in moved["moves"]}
    assert why["limits.context"][:2] == ("2048", "1024")
    assert "limits.context = 1024" in why["limits.context"][2]
    assert why["health/probe"][1:] == ("", "nothing asks for it any more")
    assert "kv -90.0 MiB" in why["memory"][2]
    assert "plan" in why
    assert "uvicorn" not in why
    again = json.loads(pih("lock", "--profile", profile, "--json").stdout)
    assert (again["changed"], again["moves"]) == (False, [])


def test_moves_are_a_table_for_people(profile):
    edited(profile, "batch = 4", "batch = 2")
    said = pih("lock", "--profile", profile).stdout.splitlines()
    assert said[0].split() == ["what", "before", "after", "why"]
    assert [line.split()[:3] for line in said if line.startswith("limits")] == [["limits.batch", "4", "2"]]


def test_a_failure_as_json(profile):
    edited(profile, "context = 2048", "contxt = 2048")
    run = pih("--json-errors", "build", "--profile", profile, check=False)
    said = json.loads(run.stderr.splitlines()[-1])
    assert run.returncode == said["exit_code"] == 3
    assert said["error"] == "ProfileError"
    assert said["where"].startswith(f"{profile}:")
    assert "context" in said["fix"]
