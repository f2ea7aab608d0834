"""What `pih lock --upgrade NAME` lets move."""

from pathlib import Path

import pytest

from pih import lock as locks
from pih import pins
from pih.cli import lock as command
from pih_runtime.errors import UsageError

LOCK = locks.read(Path(__file__).parents[3] / "profiles" / "smollm2-cpu.lock.json")
PLUGINS = {plugin.id for plugin in LOCK.plugins}


@pytest.fixture
def newest(monkeypatch, tmp_path):
    """A registry that has version 9 of everything; the names it was asked for."""
    asked = []

    def pin(kind, names):
        asked.extend(names)
        held = {(item.kind, item.name): item for item in LOCK.artifacts}
        return [command.attrs.evolve(held[kind, name], version="9", sha256="9" * 64) for name in names]

    monkeypatch.setenv("PIH_STORE", str(tmp_path))
    monkeypatch.setattr("pih.build.pin.newest", lambda *_: pin)
    return asked


def test_a_plugin_alone(newest):
    asked = command._asked(LOCK, "memory/paged")
    after = command._upgraded(LOCK, asked)
    assert asked == {"memory/paged"}
    assert {plugin.id for plugin in after.plugins} == PLUGINS - asked
    assert {item.version for item in after.artifacts} == {item.version for item in LOCK.artifacts}
    assert newest == []


def test_an_artifact_alone(newest):
    after = command._upgraded(LOCK, command._asked(LOCK, "uvicorn"))
    assert after.plugins == LOCK.plugins
    assert [item.name for item in after.artifacts if item.version == "9"] == newest == ["uvicorn"]


def test_the_base_userland_or_everything(newest):
    debs = {item.name for item in LOCK.artifacts if item.kind == "deb"}
    assert command._asked(LOCK, "base") == debs
    everything = command._asked(LOCK, pins.ALL)
    assert everything >= PLUGINS | debs | {"uvicorn"}
    assert command._upgraded(LOCK, everything).plugins == ()


def test_no_name_at_all_is_not_everything():
    with pytest.raises(UsageError, match="no plugin or artifact is called ''"):
        command._asked(LOCK, "")


@pytest.mark.parametrize(("typed", "meant"), [("uvicron", "uvicorn"), ("memory/pagd", "memory/paged")])
def test_a_name_that_the_lock_has_not(typed, meant):
    with pytest.raises(UsageError, match=f"no plugin or artifact is called '{typed}'") as refused:
        command._asked(LOCK, typed)
    assert f"did you mean {meant}?" in refused.value.fix
