"""The shipped profile, built once through the command line, and engines of the tests' own to run it."""

import contextlib
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import openai
import pytest

from tests.support import podman as podmans
from tests.support.program import PROFILE, pih


@pytest.fixture(scope="session")
def image():
    """`pih build --json` of the shipped profile: {digest, layout, ...}."""
    return json.loads(pih("build", "--profile", PROFILE, "--json").stdout)


@pytest.fixture(scope="session")
def artifacts():
    """The folder of the usual store that has every artifact of the shipped profile, by its sha256."""
    pih("fetch", "--profile", PROFILE)
    return Path(pih("store", "path").stdout.strip()) / "sha256"


@pytest.fixture(scope="session")
def podman_environment(tmp_path_factory):
    """Variables under which podman is the tests' own."""
    with podmans.environment(tmp_path_factory.mktemp("podman")) as environment:
        yield environment


@pytest.fixture(scope="session")
def podman(podman_environment):
    def ask(*arguments, **options):
        return subprocess.run(
            ["podman", *map(str, arguments)],
            env={**os.environ, **podman_environment},
            capture_output=True,
            check=True,
            **options,
        ).stdout.decode()

    return ask


@pytest.fixture(scope="session")
def loaded(image, podman):
    """The image in podman's store, by the command that `pih build` prints."""
    archive = subprocess.run(["tar", "-C", image["layout"], "-cf", "-", "."], capture_output=True, check=True).stdout
    out = podman("load", "--quiet", input=archive)
    return out.strip().rpartition(": ")[2].strip()


@pytest.fixture(scope="session")
def served(loaded, podman):
    """A client of the image in podman: no network, read-only, no capability; reached through a socket."""
    with tempfile.TemporaryDirectory(prefix="pih-") as folder:
        Path(folder).chmod(0o777)
        name = podman(
            "run", "--detach", "--network", "none", "--read-only", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--volume", f"{folder}:/run/pih",
            loaded, "--listen", "unix:/run/pih/api.sock",
        ).strip()  # fmt: skip
        transport = httpx.HTTPTransport(uds=f"{folder}/api.sock")
        with httpx.Client(transport=transport, base_url="http://pih", timeout=120) as http:
            _wait_ready(http, lambda: podman("logs", name))
            yield openai.OpenAI(base_url="http://pih/v1", api_key="none", http_client=http, max_retries=0)
        podman("stop", "--time", "10", name)
        state = json.loads(podman("inspect", name))[0]["State"]
        assert state["ExitCode"] == 0, podman("logs", name)  # SIGTERM as PID 1 ends it well


def _wait_ready(http, logs):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            if http.get("/health/ready").status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail(f"not ready: {logs()}")
