"""A kernel pack and a model plugin from outside, through lowering and the real steps: the same bytes as PIH's own."""

import os
import shutil
from pathlib import Path

import pytest

from pih import catalog, pins, profile, trust
from pih import lock as locks
from pih.build import embedded, fetch
from pih.build.store import default_root, open_store
from pih.resolve import locking
from pih_runtime.errors import FetchError

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text().replace("file:../models", f"file:{ROOT}/models")
TESTED = '\n[[tested]]\nversion = "0.1.0"\npih = ">=0.1,<0.2"\nabi = 1\n'
OUTSIDE = """
[selection]
prefer = ["kernels/mine"]

[[plugins]]
path = "mine"
trust = "local"
"""


@pytest.fixture(scope="module")
def store():
    return open_store(default_root(os.environ))


@pytest.fixture
def folder(tmp_path):
    """A folder with PIH's own kernels and Qwen3 plugin under other names, and a profile that wants them."""
    for kind, name in (("kernels", "cpu"), ("model", "qwen3")):
        source, target = ROOT / "plugins" / kind / name, tmp_path / "mine" / kind
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        manifest = target / "plugin.toml"
        manifest.write_text(manifest.read_text().replace(f'id = "{kind}/{name}"', f'id = "{kind}/mine"') + TESTED)
    shutil.copytree(ROOT / "kernels" / "cpu", tmp_path / "mine" / "kernels" / "kernels")
    (tmp_path / "p.toml").write_text(TEXT.replace('plugin = "qwen3"', 'plugin = "mine"') + OUTSIDE)
    return tmp_path


def made(path, known, store, environment):
    intent = profile.load(path)
    bring = fetch.one(store, lock_folder=path.parent, environment=environment, offline=True, listener=lambda _: None)
    found = locking.lock(intent, known(intent), pins.load(ROOT), None, fetch=bring, pin=bring)
    locks.write(found, locks.path_for(path))
    return found


def output(found, path, store, target):
    return embedded.build(
        found,
        locks.path_for(path),
        ROOT,
        store,
        target=target,
        jobs=2,
        offline=False,
        environment=os.environ,
        listener=lambda _: None,
    ).output.read_bytes()


def test_they_give_what_the_source_trees_own_give(folder, store):
    own = folder / "own.toml"
    own.write_text(TEXT)
    theirs = made(folder / "p.toml", lambda intent: trust.load(ROOT, intent, os.environ).beside(()), store, os.environ)
    ours = made(own, lambda _: catalog.load(ROOT), store, os.environ)
    assert {"kernels/mine", "model/mine"} <= {plugin.id for plugin in theirs.plugins}
    assert "kernels/cpu" not in {plugin.id for plugin in theirs.plugins}
    assert theirs.plan == ours.plan
    for target in ("plan", "kernels"):
        assert output(theirs, folder / "p.toml", store, target) == output(ours, own, store, target)


def test_a_plugin_that_was_edited_after_it_was_locked_is_not_built(folder, tmp_path):
    empty = open_store(tmp_path / "store")
    found = made(folder / "p.toml", lambda intent: trust.load(ROOT, intent, os.environ).beside(()), empty, os.environ)
    artifact = next(item for item in found.artifacts if item.name == "plugin/kernels/mine")
    empty.path(artifact.sha256).unlink()
    source = folder / "mine" / "kernels" / "kernels" / "sample.h"
    source.write_text(source.read_text() + "// changed\n")
    with pytest.raises(FetchError, match="plugin/kernels/mine is not the one that was locked"):
        fetch.fetch(
            [artifact], empty, lock_folder=folder, environment=os.environ, offline=True, listener=lambda _: None
        )
