"""The image in a docker engine: loaded, run, served at a port, inspected and verified, by the program and by hand."""

import json
import os
import signal
import subprocess

import pytest

from tests.support import docker as dockers
from tests.support.program import PROFILE, ROOT, pih
from tests.support.waiting import PATIENCE

ASK = """
import openai
client = openai.OpenAI(base_url="http://127.0.0.1:18437/v1", api_key="none")
print(client.chat.completions.create(model=client.models.list().data[0].id, temperature=0, max_tokens=12,
      messages=[{"role": "user", "content": "What is the capital of France?"}]).choices[0].message.content)
"""


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    with dockers.engine(tmp_path_factory.mktemp("docker")) as engine:
        yield engine


@pytest.fixture(scope="module")
def loaded(image, docker):
    """What docker calls the image, loaded by the command that `pih build` prints."""
    archive = subprocess.Popen(["tar", "-C", image["layout"], "-cf", "-", "."], stdout=subprocess.PIPE)
    said = docker.ask("load", "--quiet", stdin=archive.stdout)
    assert archive.wait() == 0
    return said.rpartition(": ")[2]


def test_run_answers(docker, loaded):
    asked = ("run", "--engine", "docker", "--profile", PROFILE, "--prompt", "What is the capital of France?")
    assert "Paris" in pih(*asked, environment=docker.environment).stdout
    assert docker.ask("ps", "--all", "--quiet") == ""


def test_run_loads_the_image(docker, image):
    pih("run", "--engine", "docker", "--profile", PROFILE, "--prompt", "Hello.", environment=docker.environment)
    identity = json.loads(docker.ask("image", "inspect", "localhost/pih/smollm2-cpu:0.1.0"))[0]["Id"]
    described = json.loads(pih("inspect", image["layout"], "--json").stdout)
    assert identity == described["identity"]["config"]


def test_serve_publishes_the_port(docker, loaded):
    """As at any host: a port of the engine's, and SIGTERM ends container and program well."""
    import sys

    server = subprocess.Popen(
        [*docker.inside, ROOT / "pih", "serve", "--engine", "docker", "--profile", PROFILE, "--port", "18437"],
        env={**os.environ, **docker.environment}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr
    try:
        assert any(line.startswith("serving ") for line in server.stderr)
        client = [*docker.inside, sys.executable, "-c", ASK]
        answer = subprocess.run(
            client, capture_output=True, text=True, check=False, env={**os.environ, "NO_PROXY": "*"}
        )
        assert "Paris" in answer.stdout, answer.stderr
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(PATIENCE)
    assert code in (0, 128 + signal.SIGTERM)
    assert docker.ask("ps", "--all", "--quiet") == ""


def test_the_image_by_hand(docker, loaded):
    """The command that the README gives, on the image itself: locked down, it starts and says what it serves."""
    run = ["run", "--rm", "--detach", "--read-only", "--cap-drop", "ALL", "--network", "none", loaded]
    name = docker.ask(*run)
    assert docker.ask("inspect", "--format", "{{.State.Running}}", name) == "true"
    docker.ask("stop", name)


@pytest.mark.parametrize("name", ["docker:{}", "docker-daemon:{}"])
def test_what_docker_has_is_what_was_built(docker, loaded, image, tmp_path, name):
    environment = {**docker.environment, "PIH_STORE": str(tmp_path)}
    found = json.loads(pih("inspect", name.format(loaded), "--json", environment=environment).stdout)
    built = json.loads(pih("inspect", image["layout"], "--json").stdout)
    assert found["identity"]["content"] == built["identity"]["content"]
    assert found["identity"]["config"] == built["identity"]["config"]
    assert found["identity"]["digest"] in ("", None)  # docker's store keeps no manifest
    said = pih("verify", name.format(loaded), environment=environment).stdout
    assert "intact" in said
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_image_that_docker_has_not(docker):
    run = pih("inspect", "docker:nowhere/nothing:1", environment=docker.environment, check=False)
    assert run.returncode == 6
    assert "docker:nowhere/nothing:1" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_engine_that_does_not_answer(tmp_path):
    run = pih("inspect", "docker:toy", environment={"DOCKER_HOST": f"unix://{tmp_path}/none"}, check=False)
    assert run.returncode == 6
    assert f"unix://{tmp_path}/none" in run.stderr
