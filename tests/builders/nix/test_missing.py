"""What is not there, or not what the lock says it is, is found by Nix before it runs any step."""

import json
import shutil
from pathlib import Path

import pytest

from pih import lock as locks
from pih_runtime.errors import FetchError
from tests.builders.nix import world as worlds
from tests.builders.nix.world import LOCK, edited
from tests.support.program import PROFILE, ROOT

WRONG = "0" * 64
# The shell of every derivation and its check: where nothing at all was built before, they come first.
SHELL = {"seed", "seed-check"}


@pytest.fixture
def wrong(world, image):
    """The lock names another digest for a file that only the steps for wheels take."""
    before = edited(world, LOCK, digest_of(world, "uvicorn"), WRONG)
    yield
    (world.tree / LOCK).write_text(before)


def digest_of(world, name):
    held = json.loads((world.tree / LOCK).read_text())["artifacts"]
    return next(item["sha256"] for item in held if item["name"] == name)


def test_a_missing_artifact_names_the_command_that_brings_it(missing):
    done, built = missing
    assert done.returncode != 0
    assert built == ()
    assert f"pih fetch --profile {PROFILE} --builder nix" in done.stderr


def test_a_wrong_digest_stops_pih_before_nix_starts(world, wrong):
    with pytest.raises(FetchError, match=WRONG):
        worlds.ours(world)


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_wrong_digest_stops_nix_before_anything_is_built(world, wrong, jobs):
    """Though `app`, whose input the lock is, and a kernel that was edited could be built without that file."""
    before = edited(world, "kernels/cpu/pack.h", "\n", f"\n// {jobs}\n")
    try:
        done, built = world.build(".#smollm2-cpu", "--max-jobs", jobs, check=False)
    finally:
        (world.tree / "kernels/cpu/pack.h").write_text(before)
    assert done.returncode != 0
    assert f"pih fetch --profile {PROFILE}" in done.stderr
    assert built == ()


def test_a_wrong_digest_stops_nix_in_an_empty_store_too(world, tmp_path):
    store = tmp_path / "store"  # of its own: it shares its files with one Nix store at a time
    (store / "sha256").mkdir(parents=True)
    for artifact in locks.read(ROOT / LOCK).artifacts:
        shutil.copy(Path(world.environment["PIH_STORE"], "sha256", artifact.sha256), store / "sha256")
    fresh = worlds.create(tmp_path / "nix", PIH_STORE=str(store))
    try:
        fresh.pih("fetch", "--profile", PROFILE, "--builder", "nix")
        edited(fresh, LOCK, digest_of(fresh, "uvicorn"), WRONG)
        done, built = fresh.build(".#smollm2-cpu", check=False)
    finally:
        worlds.remove(tmp_path / "nix")
    assert done.returncode != 0
    assert f"pih fetch --profile {PROFILE}" in done.stderr
    assert set(built) <= SHELL


def test_a_step_alone_needs_its_own_files_only(world, wrong):
    assert world.build(".#smollm2-cpu.steps.kernels")[1] == ()


def test_the_image_does_not_wait_for_weights_that_are_delivered_separately(world):
    derivation = world.run("nix", "eval", "--raw", ".#qwen3-cpu.present.drvPath").stdout
    needed = world.run("nix-store", "--query", "--requisites", derivation).stdout
    assert "tokenizer-qwen3" in needed
    assert "model.safetensors" not in needed


def test_those_weights_name_the_option_that_brings_them(world):
    def told(name):
        return world.evaluate(f'.#qwen3-cpu.files."{name}".url')

    assert told("qwen3-0.6b/model.safetensors") == "pih fetch --profile profiles/qwen3-cpu.toml --weights --builder nix"
    assert told("tokenizers") == "pih fetch --profile profiles/qwen3-cpu.toml --builder nix"
