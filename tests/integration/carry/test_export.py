"""`pih export` writes only what `pih verify` takes, and over nothing."""

import base64
import json
import shlex
import shutil
import subprocess

import pytest

from pih.seal import attach
from pih.trust import keys
from pih_steps import layer, oci, tar
from tests.support import bundles
from tests.support.program import pih


def with_a_loader(step, files):
    names = ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu/libc.so.6") if step == "base" else ()
    return [*files, *(layer.File(tar.Entry(name, b"elf", mode=0o755), "libc6", "a test") for name in names)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a bundle, the same one sealed, and the key of the seal."""
    folder = tmp_path_factory.mktemp("made")
    layout = bundles.write(folder / "work", change=with_a_loader)
    keys.generate(folder / "team.pem")
    attach.seal(layout, folder / "sealed", [keys.load_private(folder / "team.pem")])
    layout.rename(folder / "plain")
    return folder


@pytest.fixture
def sealed(made, tmp_path):
    return shutil.copytree(made / "sealed", tmp_path / "sealed")


def renamed(layout):
    index = bundles.index(layout)
    index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = "localhost/pih/other:1"
    (layout / "index.json").write_bytes(oci.canonical(index))


def without_provenance(layout):
    index = bundles.index(layout)
    index["manifests"] = [line for line in index["manifests"] if "provenance" not in line.get("artifactType", "")]
    (layout / "index.json").write_bytes(oci.canonical(index))


def with_a_blob(layout):
    oci.add_bytes(layout, b"more", "text/plain")


def with_a_file(layout):
    (layout / "note").write_text("hello")


def with_a_folder(layout):
    (layout / "blobs" / "sha512").mkdir()


def resealed(layout, change):
    """Change every envelope; all that names them fits again."""
    index = bundles.index(layout)
    for line in index["manifests"][1:]:
        manifest = json.loads(bundles.blob(layout, line))
        document = json.loads(bundles.blob(layout, manifest["layers"][0]))
        if "payload" not in document:
            continue
        change(document)
        for old in (line, manifest["layers"][0]):
            (layout / "blobs" / old["digest"].replace(":", "/")).unlink()
        blob = oci.add_bytes(layout, oci.canonical(document), manifest["layers"][0]["mediaType"])
        manifest["layers"][0] |= blob.descriptor()
        line.update(oci.add_bytes(layout, oci.canonical(manifest), oci.MANIFEST).descriptor())
    (layout / "index.json").write_bytes(oci.canonical(index))


def with_another_payload(layout):
    def change(document):
        payload = json.loads(base64.b64decode(document["payload"]))
        payload["subject"][0]["digest"]["sha256"] = "1" * 64
        document["payload"] = base64.b64encode(oci.canonical(payload)).decode()

    resealed(layout, change)


def with_signatures_twice(layout):
    resealed(layout, lambda document: document["signatures"].extend(document["signatures"]))


def with_many_signatures(layout):
    def change(document):
        junk = [{"keyid": f"{number:04}", "sig": base64.b64encode(bytes(64)).decode()} for number in range(16)]
        document["signatures"] = junk + document["signatures"]

    resealed(layout, change)


@pytest.mark.parametrize(
    "change",
    [
        renamed,
        without_provenance,
        with_a_blob,
        with_a_file,
        with_a_folder,
        with_another_payload,
        with_signatures_twice,
        with_many_signatures,
    ],
    ids=lambda change: change.__name__,
)
def test_what_is_refused(sealed, tmp_path, change):
    change(sealed)
    run = pih("export", sealed, "-o", tmp_path / "x.pih", check=False)
    assert (run.returncode, "to fix" in run.stderr) == (8, True), run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["sealed"]
    if change is not with_many_signatures:
        assert pih("verify", sealed, check=False).returncode == 8


def test_another_images_seal(made, sealed, tmp_path):
    other = bundles.write(tmp_path / "other", change=lambda step, files: files[:-1] if step == "base" else files)
    lines = bundles.index(sealed)["manifests"][1:]
    index = bundles.index(other)
    shutil.copytree(sealed / "blobs", other / "blobs", dirs_exist_ok=True)
    index["manifests"] += lines
    (other / "index.json").write_bytes(oci.canonical(index))
    assert pih("export", other, "-o", tmp_path / "x.pih", check=False).returncode == 8
    assert not (tmp_path / "x.pih").exists()


def test_a_sealed_bundle_is_carried_and_its_own_script_says_by_whom(made, tmp_path):
    pih("export", made / "sealed", "-o", tmp_path / "x.pih")
    run = ["sh", tmp_path / "x.pih", "verify", "--key", made / "team.pem.pub"]
    assert "by the key" in subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_what_keeps_no_layout(made, tmp_path):
    root = tmp_path / "root"
    (root / "pih").mkdir(parents=True)
    (root / "pih/bundle.json").write_text("{}")
    for bundle, words in (("podman:x", "engine's store keeps neither"), (root, "installed or unpacked keeps")):
        run = pih("export", bundle, "-o", tmp_path / "x.pih", check=False)
        assert (run.returncode, words in run.stderr) == (2, True), run.stderr
        assert "name the image layout that it came from" in run.stderr


def test_the_output_is_there_already(made, tmp_path):
    (tmp_path / "x.pih").write_text("mine")
    run = pih("export", made / "plain", "-o", tmp_path / "x.pih", check=False)
    assert (run.returncode, "name another file" in run.stderr) == (2, True), run.stderr
    assert (tmp_path / "x.pih").read_text() == "mine"


def test_the_command_that_it_shows_can_be_pasted(made, tmp_path):
    name = "sp ace u'$(id).pih"
    lines = pih("export", made / "sealed", "-o", tmp_path / name).stdout.splitlines()
    (shown,) = [line.removeprefix("install  ") for line in lines if line.startswith("install")]
    assert shlex.split(shown)[:3] == ["sh", name, "install"]
