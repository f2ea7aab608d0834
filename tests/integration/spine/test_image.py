"""The image itself: what skopeo and `pih inspect` say of it, its size, that each file is what the list says."""

import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from pih_steps import reach
from tests.support.program import PROFILE, pih

MB = 1_000_000


def layers(image):
    blobs = f"{image['layout']}/blobs/sha256"
    with Path(blobs, image["digest"].removeprefix("sha256:")).open() as manifest:
        return [
            (layer, f"{blobs}/{layer['digest'].removeprefix('sha256:')}") for layer in json.load(manifest)["layers"]
        ]


def test_skopeo_reads_the_layout(image):
    if not shutil.which("skopeo"):
        pytest.skip("skopeo is not installed")
    out = subprocess.run(
        ["skopeo", "inspect", f"oci:{image['layout']}"], capture_output=True, text=True, check=True
    ).stdout
    seen = json.loads(out)
    assert seen["Digest"] == image["digest"]
    assert (seen["Os"], seen["Architecture"]) == ("linux", "amd64")


def test_small_without_its_weights(image):
    seen = json.loads(pih("inspect", image["layout"], "--json").stdout)
    own = [layer for layer in seen["layers"] if layer["name"] != "weights"]
    assert sum(layer["size"] for layer in own) <= 40 * MB
    assert sum(layer["compressed"] for layer in own) <= 16 * MB


def test_every_file_is_listed_with_its_digest_and_nothing_else_is_there(image):
    seen = json.loads(pih("inspect", "--profile", PROFILE, "--json").stdout)
    assert seen["identity"]["digest"] == image["digest"]
    listed = {file["path"]: file for file in seen["files"]}
    found = {}
    for _, blob in layers(image):
        with tarfile.open(blob) as tar:
            for member in tar:
                if member.isfile():
                    content = tar.extractfile(member)
                    digest = hashlib.file_digest(content, "sha256").hexdigest()
                    found["/" + member.name] = {"size": member.size, "digest": f"sha256:{digest}"}
                elif member.issym():
                    found["/" + member.name] = {"target": member.linkname}
    del found["/pih/bundle.json"]
    assert found.keys() == listed.keys()
    for path, facts in found.items():
        assert {key: listed[path][key] for key in facts} == facts, path
        assert listed[path]["component"], path
        assert listed[path]["reason"], path


def test_what_every_image_is_said_to_have_is_there(image):
    """So that a plugin that asks the host for it can be refused before anything is built."""
    names = set()
    for layer, blob in layers(image):
        mode = "r:gz" if layer["mediaType"].endswith("+gzip") else "r:"
        with tarfile.open(blob, mode) as archive:
            names |= {f"/{name}" for name in archive.getnames()}
    missing = [own for own in reach.ALWAYS if not any(reach.hides(own, name) for name in names)]
    assert not missing


def test_what_was_not_selected_is_not_there(image):
    seen = json.loads(pih("inspect", image["layout"], "--json").stdout)
    paths = [file["path"] for file in seen["files"]]
    components = {file["component"] for file in seen["files"]}
    assert not [c for c in components if c.startswith(("transport/", "backend/torch", "model/qwen3"))]
    assert not [p for p in paths if p.endswith((".py", ".pyi", ".h", ".a")) or "/tests/" in p or "numpy" in p]
    assert {file["path"] for file in seen["files"] if file["component"] == "weights"} == {
        "/pih/weights/weights.safetensors",
        "/pih/weights.digests",
    }
