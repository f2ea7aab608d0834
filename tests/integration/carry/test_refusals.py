"""A carried file that is not what was exported is refused, and it is said what is wrong with it."""

import io
import os
import random
import shutil
import subprocess
import tarfile

import pytest

from pih.bundle import layout as layouts
from pih.carry import export, header
from pih_runtime.errors import SealError
from tests.support.carried import applets, carried, flipped, layout, sh
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
