"""A podman and a port for each test."""

import subprocess

import pytest

from tests.support import podman as podmans
from tests.support import ports


@pytest.fixture
def podman(tmp_path, monkeypatch):
    with podmans.environment(tmp_path / "podman") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

        def ask(*arguments):
            return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True).stdout

        yield ask


@pytest.fixture
def free_port():
    return ports.free_port()
