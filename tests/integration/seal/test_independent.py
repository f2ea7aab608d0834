"""A sealed bundle in the eyes of other people's tools."""

import base64
import hashlib
import json
import os
import subprocess
import tarfile

import pytest

from pih import lock as locks
from tests.support import bundles, verifiers
from tests.support.program import PROFILE, ROOT, pih

LOCK = locks.read(locks.path_for(ROOT / PROFILE))
STATEMENTS = {
    "application/vnd.in-toto.provenance+dsse": "https://slsa.dev/provenance/v1",
    "application/vnd.in-toto.spdx+dsse": "https://spdx.dev/Document",
    "application/vnd.in-toto.cyclonedx+dsse": "https://cyclonedx.org/bom",
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_securesystemslib_and_in_toto_verify_each_statement(sealed, kind):
    found = verifiers.ask("envelope", sealed.documents[kind], f"{sealed.fingerprint}={sealed.public}")
    assert found["accepted"] == [sealed.fingerprint]
    assert (found["type"], found["predicate"]) == ("application/vnd.in-toto+json", STATEMENTS[kind])
    digest = bundles.index(sealed.layout)["manifests"][0]["digest"].removeprefix("sha256:")
    assert found["subject"] == [["localhost/pih/smollm2-cpu:0.1.0", {"sha256": digest}]]


def test_provenance_names_every_artifact_of_the_lock_and_every_source_tree(sealed):
    kind = "application/vnd.in-toto.provenance+dsse"
    found = verifiers.ask("envelope", sealed.documents[kind], f"{sealed.fingerprint}={sealed.public}")["dependencies"]
    artifacts = [[item.name, item.purls[0], {"sha256": item.sha256}] for item in LOCK.artifacts]
    assert found[: len(artifacts)] == artifacts
    trees = {name: digest for name, _, digest in found[len(artifacts) :]}
    assert trees.keys() == {tree for step in LOCK.build.steps for tree in step.trees} - {"lock"}
    command = "find -L . -type f ! -name '*.pyc' -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    said = subprocess.run(["sh", "-c", command], cwd=ROOT / "kernels/cpu", capture_output=True, text=True, check=True)
    assert trees["kernels/cpu"] == {"dirHash": said.stdout.split()[0]}
    source = (ROOT / "resolver/pih_steps/tar.py").read_bytes()
    assert trees["resolver/pih_steps/tar.py"] == {"sha256": hashlib.sha256(source).hexdigest()}


def test_openssl_verifies_a_signature(sealed, tmp_path):
    for kind in STATEMENTS:
        envelope = json.loads(sealed.documents[kind].read_text())
        payload = base64.b64decode(envelope["payload"])
        kept = envelope["payloadType"]
        (tmp_path / "pae").write_bytes(f"DSSEv1 {len(kept)} {kept} {len(payload)} ".encode() + payload)
        (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", sealed.public, "-rawin"]
        command += ["-in", tmp_path / "pae", "-sigfile", tmp_path / "sig"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "Signature Verified Successfully", done.stderr


def test_openssl_reads_keys_of_ours(tmp_path):
    name = pih("key", "generate", tmp_path / "k.pem").stdout.strip()
    command = ["openssl", "pkey", "-in", tmp_path / "k.pem", "-pubout"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == (tmp_path / "k.pem.pub").read_text()
    raw = base64.b64decode(made.splitlines()[1])[-32:]
    assert name == f"ed25519:{hashlib.sha256(raw).hexdigest()[:32]}"


@pytest.fixture(scope="module")
def rootfs(sealed, tmp_path_factory):
    """path → sha256 of every file and link of the image, as tar and a walk find them; of a link, of its target."""
    folder = tmp_path_factory.mktemp("rootfs")
    layout = sealed.layout
    for layer in json.loads((layout / "manifest.json").read_bytes())[0]["Layers"]:
        with tarfile.open(layout / layer) as archive:
            archive.extractall(folder, filter="tar")
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            data = os.fsencode(path.readlink())
        elif path.is_file():
            data = path.read_bytes()
        else:
            continue
        found[f"/{path.relative_to(folder)}"] = hashlib.sha256(data).hexdigest()
    return found


def test_the_sbom_is_valid_and_lists_just_the_images_files(sealed, rootfs):
    found = verifiers.ask("spdx", sealed.documents["application/spdx+json"])
    assert found["problems"] == []
    assert found["files"] == rootfs
    assert len(rootfs) > 400


def test_cyclonedx_is_valid_and_has_the_same_packages(sealed):
    found = verifiers.ask("cyclonedx", sealed.documents["application/vnd.cyclonedx+json"])
    assert found["problems"] == []
    packages = verifiers.ask("spdx", sealed.documents["application/spdx+json"])["packages"]
    assert found["components"].keys() == packages.keys() - {"smollm2-cpu"}
    assert all(found["components"].values())


def test_every_component_of_the_bundle_is_a_package_with_its_licence(sealed):
    rows = json.loads(pih("inspect", sealed.layout, "--json").stdout)["components"]
    packages = verifiers.ask("spdx", sealed.documents["application/spdx+json"])["packages"]
    for row in rows:
        assert packages[row["name"]].replace(" ", "") == row["licence"].replace(" ", "")
    assert not [name for name, licence in packages.items() if licence == "NOASSERTION"]


def test_podman_loads_and_skopeo_copies_what_is_sealed(sealed, podman, tmp_path):
    with tarfile.open(tmp_path / "sealed.tar", "w") as archive:
        archive.add(sealed.layout, ".")
    assert "localhost/pih/smollm2-cpu:0.1.0" in podman("load", "-i", tmp_path / "sealed.tar")
    config = json.loads(bundles.blob(sealed.layout, bundles.index(sealed.layout)["manifests"][0]))["config"]["digest"]
    identity = podman("image", "inspect", "--format", "{{.Id}}", "localhost/pih/smollm2-cpu:0.1.0").strip()
    assert f"sha256:{identity}" == config
    said = podman("run", "--rm", "--network=none", "--entrypoint", "/usr/bin/python3", identity, "-c", "print(6*7)")
    assert said.strip() == "42"
    podman("rmi", "--force", identity)
    podman("pull", f"oci:{sealed.layout}:localhost/pih/smollm2-cpu:0.1.0")
    copy = ["skopeo", "copy", "--preserve-digests", "--dest-oci-accept-uncompressed-layers"]
    copy += [f"oci:{sealed.layout}:localhost/pih/smollm2-cpu:0.1.0", f"oci:{tmp_path}/copy:x"]
    subprocess.run(copy, capture_output=True, check=True)
    assert (
        bundles.index(tmp_path / "copy")["manifests"][0]["digest"]
        == (bundles.index(sealed.layout)["manifests"][0]["digest"])
    )
