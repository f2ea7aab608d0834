"""What several machines and tools share: locked files in both stores, closures that Nix can compare, binary caches."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pih import lock as locks
from pih.build import nix
from pih.build.store import open_store
from pih.bundle import layout as layouts
from pih.cli._workspace import IMAGE
from pih_runtime.errors import BuildError
from tests.builders.nix.world import LOCK, edited
from tests.support.program import PROFILE
from tests.support.rot import rotten


def test_both_stores_hold_one_copy_of_a_file(world):
    held = locks.read(world.tree / LOCK).artifacts[0]
    ours = open_store(Path(world.environment["PIH_STORE"])).path(held.sha256)
    (entry,) = [entry for entry in world.evaluate(".#smollm2-cpu.locked") if entry["sha256"] == held.sha256]
    theirs = Path(entry["path"])
    assert theirs.read_bytes() == ours.read_bytes()
    if theirs.stat().st_dev == ours.stat().st_dev:
        assert theirs.samefile(ours)


def test_the_artifacts_output_refers_to_every_locked_file(world, image):
    world.build(".#smollm2-cpu-artifacts")
    named = world.run("nix", "path-info", "-rsS", ".#smollm2-cpu-artifacts").stdout
    for entry in world.evaluate(".#smollm2-cpu.locked"):
        assert entry["path"] in named
    why = world.run("nix", "why-depends", ".#smollm2-cpu-artifacts", ".#smollm2-cpu.files.uvicorn").stdout
    assert "-uvicorn-" in why


def test_closures_of_two_locks_differ_by_version(world, image):
    world.build(".#smollm2-cpu-artifacts")
    older = world.path(".#smollm2-cpu-artifacts")
    held = locks.read(world.tree / LOCK)
    version = next(artifact.version for artifact in held.artifacts if artifact.name == "uvicorn")
    before = edited(world, LOCK, f'"version": "{version}"', '"version": "9.9"')
    try:
        named = world.evaluate(".#smollm2-cpu.files.uvicorn")
        digest = next(entry["sha256"] for entry in world.evaluate(".#smollm2-cpu.locked") if entry["path"] == named)
        path = world.folder / named.rsplit("/", 1)[1][33:]
        path.write_bytes(open_store(Path(world.environment["PIH_STORE"])).path(digest).read_bytes())
        world.run("nix-store", "--add-fixed", "sha256", path)
        told = world.run("nix", "store", "diff-closures", older, ".#smollm2-cpu-artifacts").stdout
    finally:
        (world.tree / LOCK).write_text(before)
    assert f"uvicorn: {version} → 9.9" in told


def test_a_second_machine_takes_a_signed_image_from_a_binary_cache(world, image, elsewhere, tmp_path):
    key = tmp_path / "key"
    key.write_text(world.run("nix", "key", "generate-secret", "--key-name", "tests-1").stdout)
    public = subprocess.run(
        ["nix", "key", "convert-secret-to-public"],
        input=key.read_text(),
        env=world.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    cache = f"file://{tmp_path}/cache"
    steps = [f".#smollm2-cpu.steps.{step.id}" for step in locks.read(world.tree / LOCK).build.steps if step.id != IMAGE]
    tools = [".#smollm2-cpu.python", ".#smollm2-cpu.present"]
    world.run("nix", "copy", "--to", f"{cache}?compression=none&secret-key={key}", *tools, *steps)

    def there(*options):
        sources = ["--option", "substituters", cache, "--option", "require-sigs", "true"]
        return elsewhere.build(".#smollm2-cpu", *sources, *options, check=False)

    # No build may fail here: Nix 2.8 then moves what it left into the store of the first machine.
    done, built = there("--option", "trusted-public-keys", "", "--max-jobs", "0")
    assert done.returncode != 0
    assert built == ()
    done, built = there("--option", "trusted-public-keys", public)
    assert done.returncode == 0, done.stderr
    assert built == (IMAGE, "bundle")


def test_a_mirror_of_the_store_serves_nix_too(elsewhere):
    store = elsewhere.environment["PIH_STORE"]
    options = ["--option", "hashed-mirrors", f"file://{store}", "--option", "sandbox-paths", store]
    done, built = elsewhere.build(".#smollm2-cpu.python.check", *options)
    assert done.returncode == 0
    assert "seed-check" in built


def test_a_file_that_was_damaged_in_nixs_store_is_named(world):
    entry = world.evaluate(".#smollm2-cpu.locked")[0]
    theirs, kept = Path(entry["path"]), world.folder / "kept"
    theirs.rename(kept)  # it may be the file of the other store too
    content = kept.read_bytes()
    theirs.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        done = world.pih("fetch", "--profile", PROFILE, "--builder", "nix", check=False)
    finally:
        theirs.unlink()
        kept.rename(theirs)
    assert done.returncode == 7
    assert f"{theirs}' was modified" in done.stderr
    assert "nix-store --delete PATH" in done.stderr


def test_an_image_that_was_damaged_in_nixs_store_is_not_delivered_and_made_again(world, image, tmp_path):
    command = ("build", "--profile", PROFILE, "--builder", "nix", "--offline", "--output", tmp_path / "copy")
    world.pih(*command)
    shutil.rmtree(tmp_path / "copy")
    held = layouts.read(image)
    weights = layouts.blob_path(image, max(held.layers, key=lambda layer: layer.size).digest)
    weights.parent.chmod(0o755)
    rotten(weights, at=50_000_000)
    weights.parent.chmod(0o555)
    done = world.pih(*command, check=False)
    assert (done.returncode, done.stdout) == (8, "")
    assert not list(tmp_path.iterdir())
    world.run("sh", "-c", done.stderr.rpartition("build again: ")[2])
    assert not image.exists()
    world.pih(*command)
    world.build(".#smollm2-cpu")  # what was made of the image went with it, and other tests count on finding it
    assert layouts.read(tmp_path / "copy").digest == held.digest
    world.pih("verify", tmp_path / "copy")


def test_nix_that_is_not_there_is_said(world):
    with pytest.raises(BuildError) as caught:
        nix.preload(world.tree / LOCK, world.tree, open_store(Path(world.environment["PIH_STORE"])), {"PATH": "/none"})
    assert "nix-instantiate is not installed" in str(caught.value)
