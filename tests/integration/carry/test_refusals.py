"""A carried file that is not what was exported is refused, and it is said what is wrong with it."""

import base64
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import tarfile

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pih.bundle import layout as layouts
from pih.carry import export, header
from pih_runtime.errors import SealError
from pih_steps import oci
from tests.support.carried import carried, layout, sh
from tests.unit.bundle.layouts import tar as archive

FLIPS = 500


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return carried(tmp_path_factory.mktemp("made"), "one")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A payload of 3 MB in four files."""
    weights = random.Random(1).randbytes(3 << 20)
    return carried(tmp_path_factory.mktemp("parts"), "large", split=1 << 20, weights=weights)


WORDS = "attached config docker envelope file index layer layout manifest oci-layout podman weights ctr tiny for made"


@pytest.mark.parametrize("shell", ["dash", "busybox ash", "bash --posix"])
def test_one_wrong_bit_runs_no_word_of_the_bundle(file, tmp_path, shell):
    """At the quotes behind the check: not one program is asked for. For the lines of the check: test_flips.py."""
    command = shell.split()
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    tools = tmp_path / "bin"
    tools.mkdir()
    for word in WORDS.split():
        (tools / word).write_text(f"#!/bin/sh\necho {word} >>{tmp_path}/run\n")
        (tools / word).chmod(0o755)
    data = file.read_bytes()
    rest = data.index(b"#REST\n")
    quotes = [at for at in range(rest, header.SIZE) if data[at : at + 1] in b"'\"`\n#"]
    chance = random.Random(13)
    places = chance.sample(quotes[: quotes.index(data.index(b"MEMBERS=") + 8) + 40], 60)
    copy = tmp_path / "flipped.pih"
    accepted = []
    for at, bit in [(at, bit) for at in places for bit in range(8) if chance.random() < 0.15]:
        copy.write_bytes(flipped(data, at, bit))
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        run = subprocess.run(
            [*command, str(copy), "verify"], capture_output=True, cwd=tmp_path, env=environment, check=False
        )
        if run.returncode == 0 or (tmp_path / "run").exists():
            accepted.append((at, bit, run.stderr))
            (tmp_path / "run").unlink(missing_ok=True)
    assert not accepted


def flipped(data, at, bit):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def test_one_wrong_bit_anywhere(file, tmp_path):
    data = file.read_bytes()
    script = len(data[: header.SIZE].rstrip(b"\n"))
    chance = random.Random(11)
    accepted, silent = [], []
    for number in range(FLIPS):
        # half of them in the script, where most is at stake, half anywhere
        at, bit = chance.randrange(script if number % 2 else len(data)), chance.randrange(8)
        copy = tmp_path / "flipped.pih"
        copy.write_bytes(flipped(data, at, bit))
        prefix = tmp_path / "prefix"
        verb = ["verify"] if number % 4 < 2 else ["install", "--prefix", prefix]
        run = sh(copy, *verb, check=False)
        if run.returncode == 0 or (prefix / "current").exists():
            accepted.append((at, bit))
        if not run.stderr.strip():
            silent.append((at, bit))
        if prefix.exists():
            shutil.rmtree(prefix)
    assert not accepted
    assert not silent


def test_what_is_wrong_is_named(file, parts, tmp_path):
    data = file.read_bytes()
    weights = data.index(b"weights weights")
    for at, words in (
        (data.index(b"NAME="), "script is damaged"),
        (data.index(b"verb_load"), "script is damaged"),
        (weights, "layer-weights is damaged"),
        (data.index(b'{"imageLayoutVersion"'), "oci-layout is damaged"),
        (header.SIZE + 100, "the archive around the members is damaged"),
        (len(data) - 1, "the archive around the members is damaged"),
    ):
        copy = tmp_path / "flipped.pih"
        copy.write_bytes(flipped(data, at, 0))
        run = sh(copy, "verify", check=False)
        assert (run.returncode, words in run.stderr) == (8, True), run.stderr


def test_parts(parts, tmp_path):
    names = sorted(path.name for path in parts.parent.glob("large.pih*"))
    assert names == ["large.pih", "large.pih.001", "large.pih.002", "large.pih.003"]
    assert all((parts.parent / name).stat().st_size <= 1 << 20 for name in names)
    assert "in 4 file(s)" in sh(parts, "verify").stdout
    prefix = tmp_path / "pih"
    sh(parts, "install", "--prefix", prefix)
    installed = prefix / "current/root/pih/weights/weights.safetensors"
    assert installed.read_bytes() == random.Random(1).randbytes(3 << 20)
    whole = parts.read_bytes()[header.SIZE :] + b"".join(
        (parts.parent / name).read_bytes() for name in names if name != "large.pih"
    )
    with tarfile.open(fileobj=io.BytesIO(whole)) as payload:
        assert "manifest.json" in payload.getnames()


def test_a_part_that_is_missing_short_or_damaged_is_named(parts, tmp_path):
    copies = [shutil.copy(path, tmp_path) for path in sorted(parts.parent.glob("large.pih*"))]
    second = tmp_path / "large.pih.002"
    data = second.read_bytes()
    second.write_bytes(flipped(data, 12345, 3))
    run = sh(copies[0], "verify", check=False)
    assert run.returncode == 8
    assert f"layer-weights is damaged, in {second}" in run.stderr
    second.write_bytes(data[:-1])
    assert "has 1048575 bytes and should have 1048576" in sh(copies[0], "verify", check=False).stderr
    second.unlink()
    run = sh(copies[0], "install", "--prefix", tmp_path / "pih", check=False)
    assert run.returncode == 8
    assert f"{second} is missing" in run.stderr
    second.mkdir()
    run = sh(copies[0], "verify", check=False)
    assert (run.returncode, f"{second} is missing, or no file" in run.stderr) == (8, True)
    assert run.stderr.startswith("pih: error")


def test_bytes_behind_the_end(file, tmp_path):
    copy = tmp_path / "longer.pih"
    copy.write_bytes(file.read_bytes() + b"x")
    assert sh(copy, "verify", check=False).returncode == 8


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("../out", b"x"), "leaves the root"),
        (("/etc/passwd", b"x"), "leaves the root"),
        (("usr/../../out", b"x"), "leaves the root"),
        (("usr/link", ("->", "/etc/passwd")), "outside the root"),
        (("usr/link", ("->", "../../out")), "outside the root"),
        (("usr/hard", ("=", "usr/bin/python3.11")), "neither file, folder nor link"),
        (("usr/null", ("dev", "")), "neither file, folder nor link"),
        (("usr/bin/python3.11", b"again"), "two entries are"),
        (("usr/.wh.lib", b""), "deletes a file"),
        (('usr/a"b', b""), "name that a shell"),
        (("usr/a\nb", b""), "name that a shell"),
    ],
)
def test_what_no_bundle_has_is_not_exported(tmp_path, entry, words):
    image = layouts.read(layout(tmp_path / "layout", hostile=archive([entry])))
    with pytest.raises(SealError, match=words):
        export.export(image, tmp_path / "x.pih", weights=None, split=0)
    assert not list(tmp_path.glob("*.pih*"))
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("tool", ["gnu", "busybox"])
@pytest.mark.parametrize(
    "entry",
    [
        ("../out", b"x"),
        ("/etc/out", b"x"),
        ("usr/../../out", b"x"),
        ("usr/link", ("->", "/etc/passwd")),
        ("usr/link", ("->", "../../out")),
        ("usr/hard", ("=", "usr/bin/python3.11")),
        ("usr/null", ("dev", "")),
    ],
)
def test_what_no_bundle_has_is_not_unpacked_either(tmp_path, monkeypatch, entry, tool):
    """By somebody who exports with a program of their own."""
    monkeypatch.setattr("pih.carry.image._problem", lambda _: "")
    bad = carried(tmp_path / "made", "bad", hostile=archive([entry]))
    shell = ("busybox", "ash") if tool == "busybox" else ("dash",)
    environment = {"PATH": str(applets(tmp_path))} if tool == "busybox" else {}
    run = sh(bad, "install", "--prefix", tmp_path / "pih", shell=shell, environment=environment, check=False)
    assert run.returncode == 8
    # the tar of busybox shortens such names, also in its listing: then it is a file that the bundle does not list
    assert "has an entry that no bundle has" in run.stderr or "does not list" in run.stderr
    assert not list((tmp_path / "pih").parent.glob("out"))
    assert not (tmp_path / "pih").exists()


def applets(folder):
    tools = folder / "bin"
    tools.mkdir()
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("busybox is not installed")
    for name in {
        "busybox",
        *subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split(),
    }:
        (tools / name).symlink_to(busybox)
    return tools


# predicate type → media type of the document that is attached besides
STATED = {
    "https://slsa.dev/provenance/v1": "",
    "https://spdx.dev/Document": "application/spdx+json",
    "https://cyclonedx.org/bom": "application/vnd.cyclonedx+json",
}


class Team:
    """A key, and what it signs: written by this test from the specifications, by nothing of pih."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.private = Ed25519PrivateKey.generate()
        raw = self.private.public_key().public_bytes_raw()
        self.keyid = f"ed25519:{hashlib.sha256(raw).hexdigest()[:32]}"
        self.public = folder / "team.pub"
        self.public.write_bytes(
            self.private.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def seal(self, folder, digest=None, alter=lambda payload: payload, junk=1, kinds=tuple(STATED), with_=None):
        """Attach what pih attaches: for each predicate an envelope, for some the plain document too.

        with_: a team that signs as well.
        """
        index = json.loads((folder / "index.json").read_bytes())
        image = index["manifests"][0]
        for kind in kinds:
            predicate = {"note": 'a "subject":[{"digest":{"sha256":"' + "0" * 64 + '"}', "kind": kind}
            payload = oci.canonical(
                {
                    "_type": "https://in-toto.io/Statement/v1",
                    "subject": [
                        {
                            "name": image["annotations"]["org.opencontainers.image.ref.name"],
                            "digest": {"sha256": (digest or image["digest"]).removeprefix("sha256:")},
                        }
                    ],
                    "predicateType": kind,
                    "predicate": predicate,
                }
            )
            media = b"application/vnd.in-toto+json"
            signed = self.private.sign(b"DSSEv1 %d %b %d %b" % (len(media), media, len(payload), payload))
            others = [
                {"keyid": f"other{number:05}", "sig": base64.b64encode(number.to_bytes(64)).decode()}
                for number in range(junk)
            ]
            if with_:
                more = with_.private.sign(b"DSSEv1 %d %b %d %b" % (len(media), media, len(payload), payload))
                others.append({"keyid": with_.keyid, "sig": base64.b64encode(more).decode()})
            envelope = {
                "payload": base64.b64encode(alter(payload)).decode(),
                "payloadType": media.decode(),
                "signatures": [*others, {"keyid": self.keyid, "sig": base64.b64encode(signed).decode()}],
            }
            self._attach(folder, index, "application/vnd.dsse.envelope.v1+json", oci.canonical(envelope))
            if STATED[kind]:
                self._attach(folder, index, STATED[kind], oci.canonical(predicate))
        (folder / "index.json").write_bytes(oci.canonical(index))
        return folder

    def _attach(self, folder, index, kind, data):
        manifest = {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST,
            "artifactType": kind,
            "config": oci.add_bytes(folder, b"{}", "application/vnd.oci.empty.v1+json").descriptor(),
            "layers": [oci.add_bytes(folder, data, kind).descriptor()],
            "subject": {key: index["manifests"][0][key] for key in ("mediaType", "digest", "size")},
        }
        entry = oci.add_bytes(folder, oci.canonical(manifest), oci.MANIFEST).descriptor()
        index["manifests"].append({**entry, "artifactType": kind})


def of_layout(folder, output):
    return export.export(layouts.read(folder), output, weights=None, split=0).files[0]


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
    weights.write_bytes(b"packed" * 100)
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
