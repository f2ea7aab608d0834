"""A podman and a port for each test."""

import socket
import subprocess

import pytest

from tests.support import podman as podmans


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
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
