"""`pih store prune`: what it lists, and what is gone afterwards."""

import json
import os

import pytest
from click.testing import CliRunner

from pih.build import made
from pih.build.progress import silent
from pih.build.store import open_store
from pih.cli import pih

OLD, NEW = "a" * 64, "b" * 64


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("PIH_STORE", str(tmp_path / "store"))
    found = open_store(tmp_path / "store")
    for key, step in ((OLD, "kernels"), (NEW, "image")):
        with found.workspace() as work:
            (work / "entry").mkdir()
            (work / "entry/output").write_bytes(b"x" * 1_000_000)
            made.publish(found, work / "entry", "steps", key, name=step, listener=silent, facts={"step": step})
    os.utime(found.place("steps", OLD), (1e9, 1e9))
    artifact = found.path(found.add_file(found.place("steps", NEW) / "output"))
    os.utime(artifact, (1e9, 1e9))
    return found


def asked(*words):
    done = CliRunner().invoke(pih, ["store", "prune", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_what_goes_is_listed_and_gone_and_artifacts_stay(store):
    head, line, total = asked("--dry-run").splitlines()
    assert head.split() == ["last", "used", "MB", "what"]
    assert line == "2001-09-09  1.0  steps/aaaaaaaaaaaa  kernels"
    assert total.split() == ["1.0", "would", "go", "from", str(store.root)]
    assert store.place("steps", OLD).exists()

    assert "kernels" in asked()
    assert [path.name for path in (store.root / "steps").iterdir()] == [NEW]
    assert len(list((store.root / "sha256").iterdir())) == 1
    assert asked().splitlines()[1].split() == ["0.0", "gone", "from", str(store.root)]


def test_json(store):
    [entry] = json.loads(asked("--json"))
    assert 1_000_000 <= entry.pop("nbytes") < 1_100_000
    assert entry == {"kind": "steps", "key": OLD, "name": "kernels", "used": "2001-09-09"}
    assert json.loads(asked("--json")) == []


def test_a_day_is_the_least(store):
    done = CliRunner().invoke(pih, ["store", "prune", "--days", "0"])
    assert done.exit_code == 2
    assert store.place("steps", OLD).exists()
