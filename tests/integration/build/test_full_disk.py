"""A disk that is full under a client of a package registry is told as a full disk."""

import shlex
import subprocess
import sys

from tests.integration.build import registries
from tests.integration.build.registries import (
    BIG,
    DEB_PURL,
    POOL,
    REVISION,
    artifact,
    debian_server,
    hugging_face,
    needs_apt,
    needs_npm,
    npm_registry,
    quiet_environment,
    the_wheel,
)
from tests.support.disk import on_small_disk
from tests.support.program import ROOT

FETCH = """
import os, sys
from pathlib import Path
from pih.build import fetch, progress, store
from pih.lock import Artifact
_, disk, kind, size, digest, purl = sys.argv
wanted = Artifact("tiny", "1.0", kind, digest, int(size), (purl,), "MIT", ())
where = store.open_store(Path(disk, "store"))
fetch.fetch([wanted], where, lock_folder=where.root, environment=os.environ, offline=False, listener=progress.silent)
"""


def on_a_full_disk(tmp_path, environment, wanted):
    """What is told of fetching into a store with less room than the artifact takes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    settings = {**quiet_environment(tmp_path), **environment, "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'runtime'}"}
    told = [sys.executable, "-c", FETCH, disk, wanted.kind, wanted.size, wanted.sha256, *wanted.purls]
    return on_small_disk("2m", shlex.join(map(str, told)), disk, settings).stderr


def check_full(told, client, tmp_path):
    words = told[told.rindex("errors.WorkerError: ") :]
    assert words.startswith(f"errors.WorkerError: {tmp_path}/disk/store: cannot work in the store: {client} met a full")
    assert "set PIH_STORE to a folder on another one" in words
    assert len(words.splitlines()) <= 3


def test_a_full_disk_under_pip(tmp_path):
    environment, wanted = the_wheel(tmp_path, text=BIG.decode("latin-1"))
    check_full(on_a_full_disk(tmp_path, environment, wanted), "pip", tmp_path)


@needs_npm
def test_a_full_disk_under_npm(tmp_path):
    data = registries.npm_package(content=BIG)
    wanted = artifact("@scope/tiny", "npm", data, "pkg:npm/%40scope/tiny@1.0.0", "1.0.0")
    with npm_registry(tmp_path, data) as environment:
        check_full(on_a_full_disk(tmp_path, environment, wanted), "npm", tmp_path)


def test_a_full_disk_under_the_client_of_hugging_face(tmp_path):
    purl = f"pkg:huggingface/owner/tiny@{REVISION}?file_name=model.safetensors"
    with hugging_face(BIG) as environment:
        told = on_a_full_disk(tmp_path, environment, artifact("tiny/model.safetensors", "hf", BIG, purl, REVISION))
    check_full(told, "huggingface_hub", tmp_path)


@needs_apt
def test_a_full_disk_under_apt(tmp_path):
    data = registries.deb(data=BIG)
    root = tmp_path / "archive"
    root.mkdir()
    registries.debian_archive(root, POOL, data)
    with debian_server("http", root) as address:
        environment = registries.apt_settings(tmp_path / "apt", address)
        settings = {**quiet_environment(tmp_path), **environment}
        subprocess.run(["apt-get", "-q", "update"], env=settings, check=True, capture_output=True)
        told = on_a_full_disk(tmp_path, environment, artifact("tiny", "deb", data, DEB_PURL, "1.0-1+b1"))
    check_full(told, "apt", tmp_path)
