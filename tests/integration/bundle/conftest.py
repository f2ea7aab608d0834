"""A podman of the tests' own: its storage and settings are below the test's folder, the user's stay as they are."""

import shutil
import socket
import subprocess

import pytest

CONTAINERS = """
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
STORAGE = """
[storage]
driver = "{driver}"
graphroot = "{root}/graph"
runroot = "{root}/run"
"""


@pytest.fixture
def podman(tmp_path, monkeypatch):
    if not shutil.which("podman") or not shutil.which("runc"):
        pytest.skip("podman or runc is not installed")
    folder = tmp_path / "podman"
    folder.mkdir()
    (folder / "containers.conf").write_text(CONTAINERS)
    (folder / "storage.conf").write_text(STORAGE.format(driver="vfs", root=folder))
    monkeypatch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))

    def ask(*arguments):
        return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True).stdout

    yield ask
    subprocess.run(["podman", "rm", "--all", "--force"], capture_output=True, check=False)
    subprocess.run(["podman", "rmi", "--all", "--force"], capture_output=True, check=False)


@pytest.fixture
def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
