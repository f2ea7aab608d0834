"""The command line of a carried file: what was said is done, or refused; nothing is passed over."""

import json
import os
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pih.bundle import layout as layouts
from pih.carry import export
from tests.support.carried import carried, layout, sh
from tests.support.team import Team


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return carried(tmp_path_factory.mktemp("made"), "one")


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """A file that `team` and `other` signed, their keys, and that of `none`."""
    folder = tmp_path_factory.mktemp("signed")
    team, other, nobody = (Team(folder / name) for name in ("team", "other", "none"))
    image = layouts.read(team.seal(layout(folder / "layout"), with_=other))
    file = export.export(image, folder / "x.pih", weights=None, split=0).files[0]
    return file, team.public, other.public, nobody.public


@pytest.mark.parametrize("shell", ["dash", "busybox ash", "bash --posix"])
def test_a_value_behind_an_equals_sign(made, tmp_path, shell):
    command = shell.split()
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    prefix = tmp_path / "pih"
    sh(made, "install", f"--prefix={prefix}", "--keep=2", shell=command)
    assert sh(prefix / "pih", "start", f"--prefix={prefix}", "--no-sandbox", shell=command).stdout == "worker of one\n"
    for word in ("--prefix=", "--unit-dir="):
        run = sh(made, "install", word, shell=command, check=False)
        assert (run.returncode, f"{word[:-1]} needs a value" in run.stderr) == (2, True), run.stderr
    run = sh(made, "status", "--prefix", prefix, "--json=yes", shell=command, check=False)
    assert (run.returncode, "status has no option --json=yes" in run.stderr) == (2, True), run.stderr


@pytest.mark.parametrize("option", ["prefix", "key", "weights", "keep", "unit-dir", "listen"])
def test_an_empty_value_is_not_the_option_left_out(made, tmp_path, option):
    verb = "start" if option == "listen" else "install"
    own = [] if option == "prefix" else ["--prefix", tmp_path / "pih"]
    for value in ([""], []):
        run = sh(made, verb, *own, f"--{option}", *value, check=False)
        assert (run.returncode, f"--{option} needs a value" in run.stderr) == (2, True), run.stderr
    assert not (tmp_path / "pih").exists()


def test_an_empty_key_does_not_verify(made):
    assert sh(made, "verify", "--key", "", check=False).returncode == 2
    assert sh(made, "load", "podman", "--key", "", check=False).returncode == 2


def test_every_key_that_is_given_must_have_signed(signed, tmp_path):
    file, team, other, nobody = signed
    run = sh(file, "verify", "--key", team, "--key", other)
    assert f"by the key {team}, by the key {other}" in run.stdout
    for keys in ((nobody, team), (team, nobody)):
        options = [word for key in keys for word in ("--key", key)]
        run = sh(file, "verify", *options, check=False)
        assert (run.returncode, f"that the key {nobody} signed" in run.stderr) == (8, True), run.stderr
        assert sh(file, "install", "--prefix", tmp_path / "pih", *options, check=False).returncode == 8
        assert not (tmp_path / "pih").exists()


def test_without_openssl_pih_is_asked_for_every_key(signed, tmp_path):
    file, team, other, _ = signed
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("openssl", "pih"):
        (tools / name).write_text(f'#!/bin/sh\n[ {name} = pih ] && echo "$@" >{tmp_path}/asked\n')
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    sh(file, "verify", "--key", team, "--key", other, environment={"PATH": path})
    assert (tmp_path / "asked").read_text().startswith(f"verify --key {team} --key {other} ")


@pytest.mark.parametrize("option", ["prefix", "weights", "keep", "unit-dir", "listen"])
def test_of_two_values_none_is_forgotten(made, tmp_path, option):
    verb = "start" if option == "listen" else "install"
    run = sh(made, verb, f"--{option}", tmp_path / "a", f"--{option}", tmp_path / "b", check=False)
    assert (run.returncode, f"--{option} is given twice" in run.stderr) == (2, True), run.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--prefix", "x"],
        ["verify", "--check"],
        ["install", "--json"],
        ["install", "--listen", "127.0.0.1:1"],
        ["install", "--other-deployment"],
        ["start", "--key", "x"],
        ["start", "--check"],
        ["status", "--key", "x"],
        ["status", "--systemd"],
        ["rollback", "--keep", "2"],
        ["uninstall", "--key", "x"],
        ["load", "--prefix", "x"],
        ["verify", "-x"],
    ],
    ids=" ".join,
)
def test_an_option_of_another_verb_is_refused(made, tmp_path, words):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    run = sh(made, *words, environment={"TMPDIR": str(temporary)}, check=False)
    assert (run.returncode, f"{words[0]} has no option {words[1]}" in run.stderr) == (2, True), run.stderr
    assert not list(temporary.iterdir())


def test_what_was_not_run_by_its_name_is_told_so(made, tmp_path):
    """It can only read itself where `$0` is its name, and no option."""
    shutil.copy(made, tmp_path / "-n.pih")
    with made.open("rb") as stream:
        piped = subprocess.run(["sh", "-s", "verify"], stdin=stream, capture_output=True, text=True, check=False)
    for run in (piped, sh("--", "-n.pih", "verify", folder=tmp_path, check=False)):
        assert (run.returncode, "was not run as sh FILE" in run.stderr) == (8, True), run.stderr
    sh("./-n.pih", "verify", folder=tmp_path)


def test_a_place_for_a_unit_that_nobody_asked_for(made, tmp_path):
    run = sh(made, "install", "--prefix", tmp_path / "pih", "--unit-dir", tmp_path, check=False)
    assert (run.returncode, "give --systemd too" in run.stderr) == (2, True)


def test_a_port_that_there_is_not(made, tmp_path):
    sh(made, "install", "--prefix", tmp_path / "pih")
    for address in ("127.0.0.1:65536", "127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1"):
        run = sh(tmp_path / "pih/pih", "start", "--listen", address, check=False)
        assert (run.returncode, "cannot listen" in run.stderr) == (2, True), run.stderr
    assert sh(tmp_path / "pih/pih", "start", "--no-sandbox").stdout == "worker of one\n"


def test_help_and_version(made):
    for words in ([], ["help"], ["--help"], ["-h"], ["install", "--help"], ["verify", "--key", "x", "-h"]):
        assert "Example" in sh(made, *words).stdout
    for word in ("version", "--version"):
        assert sh(made, word).stdout.startswith("tiny 0.1.0 sha256:")


@pytest.mark.parametrize("shell", ["dash", "busybox ash", "bash --posix"])
def test_the_installed_copy_knows_where_it_is(made, tmp_path, shell):
    command = shell.split()
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    prefix = tmp_path / "pih"
    sh(made, "install", "--prefix", prefix)
    (tmp_path / "link").symlink_to(prefix / "pih")
    for folder, file in (
        (prefix, "pih"),
        (prefix, "current/pih"),
        (prefix / "generations/1", "./pih"),
        (tmp_path, "link"),
        (tmp_path, prefix / "pih"),
    ):
        run = sh(file, "status", "--json", shell=command, folder=folder)
        assert json.loads(run.stdout)["prefix"] == str(prefix)
    run = sh(made, "status", check=False, folder=prefix)
    assert (run.returncode, "needs --prefix" in run.stderr) == (2, True)


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        (["rsa"], "is not an ed25519 key"),
        (["team", "other"], "holds several keys"),
        ([], "is no public key"),
    ],
)
def test_what_is_not_one_key_of_the_right_kind(signed, tmp_path, pem, words):
    kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    texts = {
        "team": signed[1].read_bytes(),
        "other": signed[2].read_bytes(),
        "rsa": rsa.generate_private_key(65537, 2048).public_key().public_bytes(*kind),
    }
    (tmp_path / "key.pub").write_bytes(b"".join(texts[name] for name in pem))
    run = sh(signed[0], "verify", "--key", tmp_path / "key.pub", check=False)
    assert (run.returncode, words in run.stderr) == (2, True), run.stderr
    run = sh(signed[0], "verify", "--key", tmp_path, check=False)
    assert (run.returncode, "cannot read the key" in run.stderr) == (2, True), run.stderr


def test_a_place_for_scratch_that_there_is_not(signed, tmp_path):
    run = sh(signed[0], "verify", "--key", signed[1], environment={"TMPDIR": str(tmp_path / "none")}, check=False)
    assert (run.returncode, "no folder can be made in" in run.stderr, "to fix" in run.stderr) == (9, True, True)


def test_a_path_that_looks_like_an_option(made, tmp_path):
    for name in ("-", "-p", "--json"):
        sh(made, "install", "--prefix", name, "--systemd", "--unit-dir", "-u", folder=tmp_path)
        assert sh(made, "start", "--prefix", name, "--no-sandbox", folder=tmp_path).stdout == "worker of one\n"
        sh(made, "uninstall", "--prefix", name, folder=tmp_path)
        assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]
    run = sh(made, "verify", "--key", "--json", folder=tmp_path, check=False)
    assert (run.returncode, "cannot read the key ./--json" in run.stderr) == (2, True)


def test_the_root_of_all_folders_is_no_prefix(made):
    for name in ("/", "//", "/usr/.."):
        run = sh(made, "install", "--prefix", name, check=False)
        assert (run.returncode, "is no prefix" in run.stderr) == (2, True)
