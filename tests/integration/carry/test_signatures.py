"""Who signed a carried file: the keys that must have, statements, and what is attached beside them."""

import json
import os
import shutil

import pytest
from cryptography.hazmat.primitives import serialization

from pih.bundle import layout as layouts
from pih.carry import export
from pih_steps import oci
from tests.support.carried import applets, carried, flipped, layout, packed, sh
from tests.support.team import Team, of_layout


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return carried(tmp_path_factory.mktemp("made"), "one")


def test_a_signature(tmp_path):
    team = Team(tmp_path)
    signed = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "signed.pih")
    assert f"by the key {team.public}" in sh(signed, "verify", "--key", team.public).stdout
    assert json.loads(sh(signed, "verify", "--key", team.public, "--json").stdout)["signed"] is True
    assert "integrity only" in sh(signed, "verify").stdout
    prefix = tmp_path / "pih"
    sh(signed, "install", "--prefix", prefix, "--key", team.public)
    assert "signed" in sh(prefix / "pih", "status").stdout


def test_a_signature_with_the_tools_of_busybox(tmp_path):
    team = Team(tmp_path)
    signed = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "signed.pih")
    tools = applets(tmp_path)
    without = sh(signed, "verify", "--key", team.public, environment={"PATH": str(tools)}, check=False)
    assert without.returncode == 9
    assert "nothing on this host can check a signature" in without.stderr
    (tools / "openssl").symlink_to(shutil.which("openssl"))
    sh(signed, "verify", "--key", team.public, environment={"PATH": str(tools)}, shell=("busybox", "ash"))


def test_without_openssl_pih_is_asked(tmp_path):
    team = Team(tmp_path)
    signed = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "signed.pih")
    tools = applets(tmp_path)
    for code in (0, 1):
        (tools / "pih").write_text(
            f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ntar -tf "$4" >{tmp_path}/names\nexit {code}\n'
        )
        (tools / "pih").chmod(0o755)
        run = sh(signed, "verify", "--key", team.public, environment={"PATH": str(tools)}, check=False)
        assert run.returncode == (8 if code else 0)
        assert (tmp_path / "asked").read_text().startswith(f"verify --key {team.public} ")
        assert "index.json" in (tmp_path / "names").read_text()


def test_no_signature_another_key_another_image_another_statement(tmp_path):
    team, other = Team(tmp_path), Team(tmp_path / "other")
    unsigned = of_layout(layout(tmp_path / "plain"), tmp_path / "plain.pih")
    run = sh(unsigned, "verify", "--key", team.public, check=False)
    assert (run.returncode, "carries no signature" in run.stderr) == (8, True)
    for number, folder in enumerate(
        (
            other.seal(layout(tmp_path / "others")),
            team.seal(layout(tmp_path / "elsewhere"), digest="sha256:" + "1" * 64),
            team.seal(layout(tmp_path / "altered"), alter=lambda payload: payload.replace(b"note", b"nope")),
        )
    ):
        file = of_layout(folder, tmp_path / f"{number}.pih")
        sh(file, "verify")
        run = sh(file, "verify", "--key", team.public, check=False)
        assert (run.returncode, "that the key" in run.stderr) == (8, True), run.stderr
        run = sh(file, "install", "--prefix", tmp_path / "pih", "--key", team.public, check=False)
        assert run.returncode == 8
        assert not (tmp_path / "pih/current").exists()


def test_another_layer_under_a_good_signature(tmp_path, monkeypatch):
    """Somebody keeps the signed manifest and exchanges a layer: the whole file is consistent, and the chain is not."""
    team = Team(tmp_path)
    good = team.seal(layout(tmp_path / "good"))
    image = layouts.read(good)
    worse = layouts.read(layout(tmp_path / "worse", "worse"))
    for layer in worse.layers:
        name = layer.digest.removeprefix("sha256:")
        shutil.copy(worse.path / "blobs/sha256" / name, good / "blobs/sha256" / name)
    forged = layouts.attrs.evolve(image, layers=worse.layers)
    file = export.export(forged, tmp_path / "forged.pih", weights=None, split=0).files[0]
    sh(file, "verify")
    run = sh(file, "verify", "--key", team.public, check=False)
    assert (run.returncode, "names other blobs" in run.stderr) == (8, True)


def test_an_index_for_engines_that_leads_elsewhere(tmp_path):
    team = Team(tmp_path)
    folder = team.seal(layout(tmp_path / "good"))
    listed = json.loads((folder / "manifest.json").read_bytes())
    listed[0]["Layers"].reverse()
    (folder / "manifest.json").write_bytes(oci.canonical(listed))
    run = sh(of_layout(folder, tmp_path / "x.pih"), "verify", "--key", team.public, check=False)
    assert (run.returncode, "manifest.json names other blobs" in run.stderr) == (8, True)


def test_weights_that_a_signed_image_does_not_name(tmp_path):
    team = Team(tmp_path)
    weights = tmp_path / "packed.safetensors"
    packed(weights)
    image = layouts.read(team.seal(layout(tmp_path / "layout", delivery="separate", weights=b"")))
    file = export.export(image, tmp_path / "x.pih", weights=weights, split=0).files[0]
    assert "but for the weights" in sh(file, "verify", "--key", team.public).stdout
    told = json.loads(sh(file, "verify", "--key", team.public, "--json").stdout)
    assert (told["signed"], told["weights_named"]) == (True, False)


def test_junk_signatures_cost_little(tmp_path):
    team = Team(tmp_path)
    signed = of_layout(team.seal(layout(tmp_path / "layout"), junk=400), tmp_path / "signed.pih")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "openssl").write_text(f'#!/bin/sh\necho >>{tmp_path}/asked\nexec {shutil.which("openssl")} "$@"\n')
    (tools / "openssl").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    sh(signed, "verify", "--key", team.public, environment=path)
    assert len((tmp_path / "asked").read_text()) < 10
    (tmp_path / "asked").unlink()
    other = Team(tmp_path / "other")
    assert sh(signed, "verify", "--key", other.public, environment=path, check=False).returncode == 8
    assert 16 < len((tmp_path / "asked").read_text()) < 24


def without_a_statement(team, folder):
    team.seal(folder, kinds=("https://spdx.dev/Document", "https://cyclonedx.org/bom"))


def renamed(team, folder):
    team.seal(folder)
    index = json.loads((folder / "index.json").read_bytes())
    index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = "localhost/pih/other:1"
    (folder / "index.json").write_bytes(oci.canonical(index))


def another_document(team, folder):
    team.seal(folder)
    index = json.loads((folder / "index.json").read_bytes())
    line = next(line for line in index["manifests"] if line.get("artifactType") == "application/spdx+json")
    index["manifests"].remove(line)
    team._attach(folder, index, "application/spdx+json", b'{"another":1}')
    (folder / "index.json").write_bytes(oci.canonical(index))


def one_thing_more(team, folder):
    team.seal(folder)
    index = json.loads((folder / "index.json").read_bytes())
    team._attach(folder, index, "text/plain", b"hello")
    (folder / "index.json").write_bytes(oci.canonical(index))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_a_statement, "not what pih seal attaches"),
        (renamed, "has another name"),
        (another_document, "is not attached"),
        (one_thing_more, "not what pih seal attaches"),
    ],
)
def test_what_is_attached_is_what_was_signed(tmp_path, change, words):
    team = Team(tmp_path)
    change(team, layout(tmp_path / "layout"))
    run = sh(of_layout(tmp_path / "layout", tmp_path / "x.pih"), "verify", "--key", team.public, check=False)
    assert (run.returncode, words in run.stderr, "vouched" in run.stdout) == (8, True, False), run.stderr


def test_what_is_no_public_key(file, tmp_path):
    team = Team(tmp_path)
    signed = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "signed.pih")
    (tmp_path / "private.pem").write_bytes(
        team.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (tmp_path / "junk.pub").write_text("hello")
    for key, words in (("private.pem", "is a private key"), ("junk.pub", "is no public key"), ("none", "cannot read")):
        run = sh(signed, "verify", "--key", tmp_path / key, check=False)
        assert (run.returncode, words in run.stderr) == (2, True), run.stderr


def test_the_key_is_asked_though_the_image_is_installed(tmp_path):
    team, other = Team(tmp_path), Team(tmp_path / "other")
    signed = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "signed.pih")
    prefix = tmp_path / "pih"
    sh(signed, "install", "--prefix", prefix, "--key", team.public)
    for verb in ("install", "upgrade"):
        assert "nothing to do" in sh(signed, verb, "--prefix", prefix, "--key", team.public).stderr
        run = sh(signed, verb, "--prefix", prefix, "--key", other.public, check=False)
        assert (run.returncode, "nothing to do" in run.stderr) == (8, False), run.stderr
    data = signed.read_bytes()
    signed.write_bytes(flipped(data, data.index(b"weights weights"), 0))
    assert sh(signed, "install", "--prefix", prefix, check=False).returncode == 8


def test_a_refused_install_leaves_nothing(tmp_path):
    team, other = Team(tmp_path), Team(tmp_path / "other")
    signed = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "signed.pih")
    prefix = tmp_path / "opt" / "deep" / "pih"
    assert sh(signed, "install", "--prefix", prefix, "--key", other.public, check=False).returncode == 8
    data = signed.read_bytes()
    signed.write_bytes(flipped(data, data.index(b"weights weights"), 0))
    assert sh(signed, "install", "--prefix", prefix, check=False).returncode == 8
    assert not (tmp_path / "opt").exists()
