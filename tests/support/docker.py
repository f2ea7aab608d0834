"""A docker engine of the tests' own, in a network namespace: the host's engine, networks and rules stay as they are."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, until


@dataclass(frozen=True)
class Engine:
    """environment: makes `docker` ask this engine. inside: a command line's beginning, to run where its ports are.

    containerd: the socket of the containerd that it works with.
    """

    environment: dict[str, str]
    inside: tuple[str, ...]
    containerd: str

    def ask(self, *arguments, **options) -> str:
        """What `docker ARGUMENTS` prints."""
        run = subprocess.run(
            ["docker", *map(str, arguments)],
            env={**os.environ, **self.environment}, capture_output=True, text=True, check=False, **options,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Its images lie in `folder`; it and its containers end with the block."""
    if not shutil.which("dockerd") or not shutil.which("docker"):
        pytest.skip("docker or its engine is not installed")
    if os.getuid():
        pytest.skip("docker's engine is started by root alone")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pih-docker-") as short:  # a socket's path is at most 107 bytes
        host = f"unix://{short}/docker.sock"
        arguments = ["--data-root", folder / "data", "--exec-root", f"{short}/exec", "--pidfile", f"{short}/pid"]
        log = folder / "log"
        with log.open("wb") as out:
            daemon = subprocess.Popen(
                ["unshare", "--net", "dockerd", *arguments, "--host", host, "--storage-driver", "vfs"],
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        inside = ("nsenter", f"--net=/proc/{daemon.pid}/ns/net")
        own = Engine({"DOCKER_HOST": host}, inside, f"{short}/exec/containerd/containerd.sock")
        try:
            _wait(own, daemon, log)
            subprocess.run([*own.inside, "ip", "link", "set", "lo", "up"], check=True)
            yield own
            # what still runs: one that has stopped may be in the middle of its own removal (`--rm`)
            for name in own.ask("ps", "--quiet").split():
                own.ask("rm", "--force", name)
        finally:
            daemon.terminate()
            daemon.wait(PATIENCE)


def _wait(own: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    environment = {**os.environ, **own.environment}

    def answers():
        asked = subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False)
        return asked.returncode == 0 or daemon.poll() is not None

    until(answers, what="docker's engine")
    assert daemon.poll() is None, f"docker's engine does not start: {log.read_text()[-2000:]}"
