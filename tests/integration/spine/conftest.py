"""The shipped profile, built once through the command line, and engines of the tests' own to run it."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import httpx
import openai
import pytest

from tests.support import podman as podmans
from tests.support.program import PROFILE, pih
from tests.support.waiting import PATIENCE, until


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
        with httpx.Client(transport=transport, base_url="http://pih", timeout=PATIENCE) as http:
            until(lambda: _ready(http, podman, name), what="readiness", pause=0.05)
            yield openai.OpenAI(base_url="http://pih/v1", api_key="none", http_client=http, max_retries=0)
        podman("stop", "--time", "60", name)
        state = json.loads(podman("inspect", name))[0]["State"]
        assert state["ExitCode"] == 0, podman("logs", name)  # SIGTERM as PID 1 ends it well


def _ready(http, podman, name):
    try:
        return http.get("/health/ready").status_code == 200
    except httpx.TransportError:
        running = podman("inspect", "--format", "{{.State.Running}}", name).strip()
        assert running == "true", podman("logs", name)
        return False
