"""Bits of a stored image rot, and nothing else tells: the program drops its own, says so, and makes it again."""

import json
import os
import shutil
from pathlib import Path

import pytest

from pih.build.store import default_root
from pih.bundle import layout as layouts
from tests.support.program import PROFILE, pih
from tests.support.rot import rotten

COMMANDS = {
    "build": ("build", "--profile", PROFILE),
    "build a copy": ("build", "--profile", PROFILE, "--output", "{tmp}/copy"),
    "inspect": ("inspect", "--profile", PROFILE),
    "why": ("why", "/usr/bin/pih-worker", "--profile", PROFILE),
    "size": ("size", "--profile", PROFILE),
    "run": ("run", "--profile", PROFILE, "--prompt", "Hi", "--max-tokens", "2"),
    "verify": ("verify", "{layout}"),
    "export": ("export", "{layout}", "-o", "{tmp}/carried.pih"),
}


@pytest.fixture
def store(tmp_path):
    """A store of the test's own with what the shared one has made: hard links, and the artifacts by a link."""
    shared, own = default_root(os.environ), tmp_path / "store"
    for kind in ("steps", "python"):
        shutil.copytree(shared / kind, own / kind, copy_function=os.link, symlinks=True)
    (own / "sha256").symlink_to(shared / "sha256")
    return own


def parts(folder):
    """What is damaged: the manifest, the index, the layer with the deployment's own files."""
    image = layouts.read(folder)
    titles = [line["comment"] for line in image.config["history"]]
    return {
        "index": folder / "index.json",
        "manifest": layouts.blob_path(folder, image.digest),
        "layer": layouts.blob_path(folder, image.layers[titles.index("deployment")].digest),
    }


@pytest.mark.parametrize("part", ["index", "manifest", "layer"])
def test_a_damaged_image_of_the_stores_own_is_made_again(image, store, tmp_path, part):
    ours = {"PIH_STORE": str(store)}
    folder = Path(json.loads(pih("build", "--profile", PROFILE, "--json", environment=ours).stdout)["layout"])
    assert folder.is_relative_to(store)
    for name, command in COMMANDS.items():
        shutil.rmtree(store / "roots", ignore_errors=True)  # what is unpacked already needs the layers no more
        arguments = [word.format(tmp=tmp_path, layout=folder) for word in command]
        rotten(parts(folder)[part], at=0 if part == "layer" else 200)  # of a layer, some read no more than they need
        refused = pih(*arguments, environment=ours, check=False)
        assert refused.returncode == 8, (name, refused.stderr)
        assert "damaged  the image" in refused.stderr, name
        assert "run this again" in refused.stderr, name
        assert not folder.exists(), name
        assert not (tmp_path / "copy").exists()
        again = pih("build", "--profile", PROFILE, "--json", environment=ours)
        assert json.loads(again.stdout)["digest"] == image["digest"]
        assert json.loads(again.stdout)["steps_run"] == ["image"]


@pytest.mark.parametrize("keys", [[], ["--key", "{tmp}/a.pem"]], ids=["plain", "sealed"])
@pytest.mark.parametrize("part", ["weights", "for docker"])
def test_what_is_delivered_was_read_whole(image, store, tmp_path, keys, part):
    """A build itself reads no weights, and not the list that `docker load` goes by."""
    pih("key", "generate", tmp_path / "a.pem")
    copy = tmp_path / "copy"
    command = ["build", "--profile", PROFILE, "--output", copy, *(word.format(tmp=tmp_path) for word in keys)]
    ours = {"PIH_STORE": str(store)}
    folder = Path(json.loads(pih("build", "--profile", PROFILE, "--json", environment=ours).stdout)["layout"])
    layers = [layouts.blob_path(folder, layer.digest) for layer in layouts.read(folder).layers]
    largest = max(layers, key=lambda path: path.stat().st_size)
    rotten(*((largest, 50_000_000) if part == "weights" else (folder / "manifest.json", 300)))
    refused = pih(*command, environment=ours, check=False)
    assert (refused.returncode, refused.stdout) == (8, "")
    assert f"pih: error: {folder}" in refused.stderr
    assert "run this again: the image was damaged in the store, is removed" in refused.stderr
    assert not folder.exists()
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []
    pih(*command, environment=ours)
    assert layouts.read(copy).digest == image["digest"]
    pih("verify", copy)


@pytest.mark.parametrize("step", ["weights", "digests"])
def test_packed_weights_are_read_before_they_are_delivered(store, tmp_path, step):
    pack = ("weights", "pack", "--profile", PROFILE, "--json")
    ours = {"PIH_STORE": str(store)}
    whole = json.loads(pih(*pack, environment=ours).stdout)
    rotten(Path(whole["path" if step == "weights" else "digests"]), at=300)
    packed = pih(*pack, "--output", tmp_path / "w.safetensors", environment=ours)
    assert f"damaged  {step} in the store: removed, to be made again" in packed.stderr
    assert {**json.loads(packed.stdout), "path": "", "digests": ""} == {**whole, "path": "", "digests": ""}


def test_a_damaged_image_in_nixs_store_is_named_with_what_to_do(image, store, tmp_path):
    """Nix does not look whether what it has is still whole, and keeps what a link of the store leads to."""
    ours = {"PIH_STORE": str(store)}
    path = tmp_path / f"{'0' * 32}-image"
    shutil.copytree(image["layout"], path)
    (store / "nix").mkdir()
    for name, target in (("this", path), ("other", tmp_path)):
        (store / "nix" / name).symlink_to(target)
    rotten(parts(path)["layer"], at=300)
    (tmp_path / "result").symlink_to(path)
    refused = pih("verify", tmp_path / "result", environment=ours, check=False)
    assert refused.returncode == 8
    assert "in Nix's store: remove it there, then build again: nix-store --delete $(" in refused.stderr
    assert f" {path})\n" in refused.stderr
    assert [link.name for link in (store / "nix").iterdir()] == ["other"]


def test_a_damaged_image_of_the_users_own_stays(tmp_path):
    pih("build", "--profile", PROFILE, "--output", tmp_path / "output")
    rotten(tmp_path / "output/index.json", at=200)
    refused = pih("inspect", tmp_path / "output", check=False)
    assert refused.returncode == 8
    assert "run this again" not in refused.stderr
    assert (tmp_path / "output").is_dir()


def test_what_is_kept_of_an_image_in_podmans_store_is_read_again(loaded, podman_environment, tmp_path):
    environment = {**podman_environment, "PIH_STORE": str(tmp_path)}
    name = f"podman:{loaded}"
    first = pih("inspect", name, environment=environment).stdout
    for part in ("index.json", "described/lock.json", "described/bundle.json"):
        (entry,) = (tmp_path / "images").iterdir()
        rotten(entry / "output" / part, at=100)
        refused = pih("inspect", name, environment=environment, check=False)
        assert refused.returncode == 8, refused.stderr
        assert "damaged  what was read of an image" in refused.stderr
        assert pih("inspect", name, environment=environment).stdout == first
