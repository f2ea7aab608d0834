"""A podman of the tests' own: storage and settings below one folder, the user's stay as they are."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# runc and cgroupfs work for root without systemd, also where cgroups are mounted in both versions
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""


@contextmanager
def environment(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `podman` is this one; its containers and images are removed at the end."""
    if not shutil.which("podman") or not shutil.which("runc"):
        pytest.skip("podman or runc is not installed")
    folder.mkdir(exist_ok=True)
    (folder / "containers.conf").write_text(_CONTAINERS)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    own = {"CONTAINERS_CONF": f"{folder}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf"}
    yield own
    for command in (["rm", "--all", "--force"], ["rmi", "--all", "--force"]):
        subprocess.run(["podman", *command], env={**os.environ, **own}, capture_output=True, check=False)
