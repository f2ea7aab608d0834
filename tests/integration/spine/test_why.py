"""`pih why` on the built image of the shipped profile: no file of it is without a reason."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pih.inspect import causes, reasons, why
from pih.inspect.opened import opened
from tests.support.program import PROFILE, pih


@pytest.fixture(scope="module")
def held(image):
    return opened(Path(image["layout"]))


def chains_of(held):
    graph = causes.of_contents(causes.of_lock(held.lock), held.contents)
    return {key: why.chains(graph, key)[0] for key in graph.things}


def test_every_file_plugin_and_artifact_has_chains_that_begin_at_lines_of_the_profile(held):
    chains = chains_of(held)
    assert {("file", file.path) for file in held.contents.files} <= chains.keys()
    assert ("file", "/pih/bundle.json") in chains
    assert {("layer", f"{layer.name} layer") for layer in held.contents.layers} <= chains.keys()
    assert {("plugin", plugin.id) for plugin in held.lock.plugins} <= chains.keys()
    assert {("artifact", artifact.name) for artifact in held.lock.artifacts} <= chains.keys()
    for key, found in chains.items():
        assert found, key
        assert all(reasons.is_profile_line(chain[0]) for chain in found), key


def test_reasons_of_the_build_are_followed_to_the_file_that_they_name(held):
    """'imported by X' and 'needed by X' always name another file of the image."""
    chains = chains_of(held)
    for file in held.contents.files:
        if file.reason.startswith(("imported by ", "needed by ")):
            assert " imports " in chains["file", file.path][0][-1] or " needs " in chains["file", file.path][0][-1]


def test_a_library_by_its_base_name(image):
    for source in (["--profile", PROFILE], [image["layout"]]):
        said = pih("why", "libstdc++.so.6", *source).stdout
        assert "tokenizers.tokenizers needs libstdc++.so.6" in said
        assert PROFILE in said


def test_a_lock_alone_knows_plugins_and_ops():
    said = json.loads(pih("why", "attention", "--lock", PROFILE.replace(".toml", ".lock.json"), "--json").stdout)
    assert said["answers"][0]["kind"] == "op"
    assert said["answers"][0]["chains"][0][0].startswith(f"{PROFILE}:")


def test_an_archive_and_an_unpacked_root_are_bundles_too(image, held, tmp_path):
    archive, root = tmp_path / "image.tar", tmp_path / "root"
    subprocess.run(["tar", "-C", image["layout"], "-cf", archive, "."], check=True)
    root.mkdir()
    for layer in held.contents.layers:
        blob = Path(image["layout"], "blobs/sha256", layer.digest.removeprefix("sha256:"))
        if layer.name != "weights":
            subprocess.run(["tar", "-C", root, "-xf", blob], check=True)
    digest = next(file.digest for file in held.contents.files if file.path == "/usr/bin/pih-worker")
    for bundle in (archive, root):
        assert "entry point of the image" in pih("why", digest[:20], bundle).stdout
        assert pih("inspect", bundle).stdout.splitlines()[0].split() == ["name", held.contents.name]
    assert opened(archive) == held
    assert opened(root).contents.files == held.contents.files


def test_a_root_whose_lock_was_exchanged_is_refused(image, held, tmp_path):
    shutil.copytree(image["layout"], tmp_path / "layout")
    app = next(layer for layer in held.contents.layers if layer.name == "app")
    (tmp_path / "pih").mkdir()
    deployment = next(layer for layer in held.contents.layers if layer.name == "deployment")
    for layer in (app, deployment):
        blob = tmp_path / "layout/blobs/sha256" / layer.digest.removeprefix("sha256:")
        subprocess.run(["tar", "-C", tmp_path, "-xf", blob], check=True)
    lock = tmp_path / "pih/lock.json"
    lock.write_text(lock.read_text().replace('"batch": 4', '"batch": 5'))
    run = pih("why", "uvicorn", tmp_path, check=False)
    assert run.returncode == 8
    assert "not the lock that the bundle was built from" in run.stderr


@pytest.mark.parametrize("name", ["libstdc++.so.7", "__init__.pyc", "sha256:ffffffff"])
def test_no_match_and_ambiguity_are_usage_errors_that_help(image, name):
    run = pih("why", name, image["layout"], check=False)
    assert run.returncode == 2
    assert run.stdout == ""
    assert "to fix:" in run.stderr


def test_the_digests_of_image_and_layers_are_known(image, held):
    for digest in (image["digest"], *(layer.digest for layer in held.contents.layers)):
        assert json.loads(pih("why", digest, image["layout"], "--json").stdout)["answers"][0]["digest"] == digest


def test_two_sources_are_refused(image):
    assert pih("why", "uvicorn", image["layout"], "--profile", PROFILE, check=False).returncode == 2
