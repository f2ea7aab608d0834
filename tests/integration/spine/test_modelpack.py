"""Packed weights as a ModelPack artifact, read by a tool that knows nothing of pih."""

import hashlib
import json
import shutil
import subprocess

import pytest

from tests.support.program import PROFILE, pih


def skopeo(*arguments):
    if not shutil.which("skopeo"):
        pytest.skip("skopeo is not installed")
    return subprocess.run(["skopeo", *map(str, arguments)], capture_output=True, check=True).stdout


def test_skopeo_carries_the_weights(tmp_path):
    """Media types and keys are those of github.com/modelpack/model-spec, schema/config-schema.json and specs-go/v1."""
    pack = ("weights", "pack", "--profile", PROFILE, "--json", "--oci")
    packed = json.loads(pih(*pack, tmp_path / "artifact").stdout)
    raw = skopeo("inspect", "--raw", f"oci:{tmp_path / 'artifact'}")
    assert packed["artifact"] == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    manifest = json.loads(raw)
    assert manifest["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.model.config.v1+json"
    assert [(layer["mediaType"], layer["annotations"], layer["digest"]) for layer in manifest["layers"]] == [
        (
            "application/vnd.cncf.model.weight.v1.raw",
            {"org.cncf.model.filepath": "weights.safetensors"},
            f"sha256:{packed['sha256']}",
        ),
        (
            "application/vnd.cncf.model.weight.config.v1.raw",
            {"org.cncf.model.filepath": "weights.digests"},
            packed["digest"],
        ),
    ]
    digests = [layer["digest"] for layer in manifest["layers"]]
    assert json.loads(skopeo("inspect", "--config", "--raw", f"oci:{tmp_path / 'artifact'}")) == {
        "descriptor": {"name": "smollm2-cpu", "version": "0.1.0", "licenses": ["Apache-2.0"]},
        "config": {"format": "safetensors"},
        "modelfs": {"type": "layers", "diffIds": digests},
    }
    skopeo("copy", f"oci:{tmp_path / 'artifact'}", f"dir:{tmp_path / 'carried'}")
    for digest in digests:
        name = digest.removeprefix("sha256:")
        assert hashlib.sha256((tmp_path / "carried" / name).read_bytes()).hexdigest() == name
    assert not any(path.is_symlink() for path in (tmp_path / "artifact").rglob("*"))

    assert json.loads(pih(*pack, tmp_path / "artifact").stdout) == packed  # in place of the one that was there
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").touch()
    assert pih(*pack, tmp_path / "mine", check=False).returncode == 2
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]
