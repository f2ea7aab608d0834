"""The committed SmolLM2 locks, made again from the model's own file (fetched into the user's store if need be)."""

import os
from pathlib import Path

import pytest

from pih import catalog, lock, pins, profile
from pih.build import fetch
from pih.build.store import default_root, open_store
from pih.resolve import locking

ROOT = Path(__file__).parents[3]


def refuse(what):
    raise AssertionError(f"{what} is not pinned")


@pytest.fixture(scope="module")
def bring():
    store = open_store(default_root(os.environ))
    return fetch.one(
        store, lock_folder=ROOT / "profiles", environment=os.environ, offline=False, listener=lambda _: None
    )


@pytest.mark.parametrize("name", ["smollm2-cpu", "smollm2-cpu-v4"])
def test_the_committed_lock_is_what_the_resolver_says_today(name, bring):
    path = ROOT / "profiles" / f"{name}.toml"
    found = locking.lock(profile.load(path), catalog.load(ROOT), pins.load(ROOT), None, fetch=bring, pin=refuse)
    assert lock.to_json(found) == lock.path_for(path).read_text()


def test_the_weights_stay_in_the_formats_of_their_file():
    held = lock.read(ROOT / "profiles" / "smollm2-cpu.lock.json")
    linears = {(binding.weight, binding.layout) for binding in held.bindings if binding.op == "linear"}
    assert linears == {("q4_1", "tile16"), ("q8_0", "tile16")}
    assert held.budget.weights < 98_362_432
