"""`pih build --all-builders`: a line for each builder, whatever became of it, and an exit code that says so."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.program import PROFILE, pih

# Stands in for Bazel: it "builds" the folder IMAGE.
BAZEL = """#!/bin/sh
for option in "$@"; do
    case $option in --execution_log_json_file=*) : >"${option#*=}" ;; esac
done
mkdir -p .bazel/bin && rm -rf .bazel/bin/smollm2-cpu && cp -r IMAGE .bazel/bin/smollm2-cpu
"""


@pytest.fixture(scope="module")
def image():
    return json.loads(pih("build", "--profile", PROFILE, "--json").stdout)


def compared(folder, *options, **programs):
    """With these programs and no other builder's."""
    folder.mkdir()
    for name in ("sh", "cp", "rm", "mkdir", "readlink", "dirname", "cat", "cksum"):
        (folder / name).symlink_to(shutil.which(name))
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    ours = Path(pih("store", "path").stdout.strip())
    store = folder / "store"
    store.mkdir()
    for name in ("sha256", "steps", "python"):  # what is built, without the workspaces of a real Bazel
        (store / name).symlink_to(ours / name)
    environment = {"PATH": str(folder), "PIH_STORE": str(store)}
    return pih("build", "--all-builders", "--profile", PROFILE, *options, environment=environment, check=False)


def test_a_builder_that_fails_has_its_line(image, tmp_path):
    done = compared(tmp_path / "bin", bazel="#!/bin/sh\necho 'no room' >&2\nexit 36\n")
    embedded, bazel, nix = done.stdout.splitlines()
    assert embedded.startswith(f"embedded   {image['digest']}")
    assert bazel == "bazel      FAILED: bazel failed:"
    assert nix == "nix        SKIPPED: nix-build is not installed"
    assert done.returncode == 7
    assert "no room" in done.stderr


def test_the_same_as_json(image, tmp_path):
    done = compared(tmp_path / "bin", "--json", bazel="#!/bin/sh\necho 'no room' >&2\nexit 36\n")
    embedded, bazel, nix = json.loads(done.stdout)
    assert (embedded["digest"], embedded["failed"], embedded["skipped"]) == (image["digest"], "", "")
    assert "no room" in bazel["failed"]
    assert nix["skipped"] == "nix-build is not installed"
    assert done.returncode == 7


def test_builders_that_agree(image, tmp_path):
    done = compared(tmp_path / "bin", bazel=BAZEL.replace("IMAGE", image["layout"]))
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[:2]] == [image["digest"]] * 2


def test_a_builder_that_gives_no_image_has_failed(image, tmp_path):
    (tmp_path / "other").mkdir()
    done = compared(tmp_path / "bin", bazel=BAZEL.replace("IMAGE", str(tmp_path / "other")))
    assert "FAILED: " in done.stdout.splitlines()[1]
    assert done.returncode == 8


def test_a_builder_that_gives_other_bytes_is_named_with_the_first_of_them(image, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(image["layout"], other)
    (other / "oci-layout").chmod(0o644)
    (other / "oci-layout").write_text((other / "oci-layout").read_text() + "\n")
    done = compared(tmp_path / "bin", bazel=BAZEL.replace("IMAGE", str(other)))
    assert done.returncode == 7
    assert done.stdout.splitlines()[1].endswith("DIFFERS")
    assert "oci-layout: bazel gives other bytes" in done.stderr
