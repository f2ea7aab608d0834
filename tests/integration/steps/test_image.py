"""The image of the real base packages and wheels: small, the same everywhere, and it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import podman as podmans

MEGABYTE = 1_000_000
# Imports every module that the image has; those that only fail without another system are named with the reason.
IMPORT_ALL = """
import importlib, os, sys
sys.path.insert(0, "/pih/lib")
failed = {}
for base in ("/pih/lib", "/usr/lib/python3.11", "/usr/lib/python3.11/lib-dynload"):
    for folder, _, names in os.walk(base):
        if "lib-dynload" in folder and not base.endswith("lib-dynload"):
            continue
        for name in names:
            stem, dot, kind = name.partition(".")
            path = os.path.relpath(os.path.join(folder, stem), base)
            if kind == "pyc" or name.endswith(".so"):
                module = path.replace("/", ".").removesuffix(".__init__")
                try:
                    importlib.import_module(module)
                except BaseException as problem:
                    failed[module] = repr(problem)
for module, problem in sorted(failed.items()):
    print(module, problem)
"""


def _bwrap(rootfs: Path, *command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    sandbox = ["bwrap", "--unshare-all", "--uid", "65532", "--gid", "65532", "--die-with-parent"]
    mounts = ["--ro-bind", str(rootfs), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv"]
    return subprocess.run([*sandbox, *mounts, *command], capture_output=True, text=True, check=False)


def _files(built: Path, step: str) -> list[dict]:
    return json.loads((built / step / "files.json").read_bytes())


def test_image_without_weights_is_within_its_limits(built, record_property):
    unpacked = sum(line["size"] for step in ("base", "wheels", "app") for line in _files(built, step))
    compressed = sum((built / step / "layer.tar.gz").stat().st_size for step in ("base", "wheels", "app"))
    record_property("unpacked_bytes", unpacked)
    record_property("compressed_bytes", compressed)
    print(f"unpacked {unpacked / MEGABYTE:.1f} MB, compressed {compressed / MEGABYTE:.1f} MB")
    assert unpacked <= 40 * MEGABYTE
    assert compressed <= 16 * MEGABYTE


def test_every_module_in_the_image_can_be_imported(rootfs):
    result = _bwrap(rootfs, "/usr/bin/python3", "-IBc", IMPORT_ALL)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


def test_worker_starts_by_its_entry_point(rootfs):
    result = _bwrap(rootfs, "/usr/bin/pih-worker", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "usage: pih-worker" in result.stdout


def test_worker_starts_from_an_unpacked_folder_through_its_own_loader(rootfs):
    libraries = rootfs / "usr/lib/x86_64-linux-gnu"
    loader = [rootfs / "lib64/ld-linux-x86-64.so.2", "--library-path", libraries, rootfs / "usr/bin/python3.11"]
    result = subprocess.run(
        [*loader, "-I", "-B", rootfs / "usr/bin/pih-worker", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "usage: pih-worker" in result.stdout


def test_bundle_lists_exactly_the_files_of_the_image(rootfs):
    listed = {line["path"] for line in json.loads((rootfs / "pih/bundle.json").read_bytes())["files"]}
    present = {
        "/" + str(Path(folder, name).relative_to(rootfs))
        for folder, folders, files in os.walk(rootfs)
        for name in [*files, *(entry for entry in folders if Path(folder, entry).is_symlink())]
    }
    assert present - listed == {"/pih/bundle.json"}
    assert listed - present == set()


def test_nothing_in_the_image_is_left_unexplained(rootfs):
    lines = json.loads((rootfs / "pih/bundle.json").read_bytes())["files"]
    assert all(line["component"] and line["reason"] for line in lines)
    assert {line["path"] for line in lines if line["component"] == "weights"} == {
        "/pih/weights/weights.safetensors",
        "/pih/weights.digests",
    }


def test_bytes_do_not_depend_on_place_zone_user_or_umask(built, build, tmp_path):
    folder = tmp_path / "another place" / "deeper"
    folder.mkdir(parents=True)
    environment = {"TZ": "Asia/Kathmandu", "HOME": "/nonexistent", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "7"}
    user = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "12345", "--gid", "54321"]
    again = build(folder, prefix=user if shutil.which("bwrap") else [], env=environment, umask=0o077)
    assert (again / "image" / "index.json").read_bytes() == (built / "image" / "index.json").read_bytes()


def test_skopeo_reads_the_layout(built):
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    command = ["skopeo", "inspect", "--format", "{{.Digest}} {{.Os}}/{{.Architecture}}", f"oci:{built / 'image'}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    index = json.loads((built / "image" / "index.json").read_bytes())
    assert shown == [index["manifests"][0]["digest"], "linux/amd64"]


@pytest.fixture
def podman(tmp_path):
    with podmans.environment(tmp_path / "podman") as own:
        yield lambda *command: subprocess.run(
            ["podman", *command], env={**os.environ, **own}, capture_output=True, text=True, check=False
        )


def test_podman_loads_and_runs_the_layout_confined(built, podman, tmp_path):
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", built / "image", "-cf", archive, "."], check=True)
    loaded = podman("load", "-i", archive)
    assert loaded.returncode == 0, loaded.stderr
    assert "localhost/pih/tiny:0.1.0" in loaded.stdout
    confined = ["--rm", "--network=none", "--read-only", "--cap-drop=ALL"]
    result = podman("run", *confined, "localhost/pih/tiny:0.1.0", "--help")
    assert result.returncode == 0, result.stderr
    assert "usage: pih-worker" in result.stdout
