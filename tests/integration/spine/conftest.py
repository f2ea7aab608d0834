"""The shipped profile, built once through the command line; engines to run it and a browser to look at it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx
import openai
import pytest

from tests.support import podman as podmans
from tests.support.program import PROFILE, pih
from tests.support.waiting import PATIENCE, until

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


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


@pytest.fixture(scope="module")
def chromium():
    """A browser with a profile of its own, which goes with it."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed (package chromium): the page is not tested")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def written(image, tmp_path_factory):
    """The page of the shipped profile's image, by the command line."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert pih("inspect", image["layout"], "--html", path).stdout == f"page     {path}\n"
    return path


@pytest.fixture
def shown(chromium, written):
    """show(): open the page; whatever it logs or asks of a network fails the test at its end."""
    trouble, contexts = [], []

    def show(path=written, **settings):
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **settings})
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (trouble.append("dialog"), dialog.dismiss()))
        address = path.as_uri()
        page.on("request", lambda request: request.url != address and trouble.append(f"request {request.url}"))
        page.goto(address)
        return page

    yield show
    for context in contexts:
        text = context.pages[0].evaluate("document.body.innerText")
        trouble += re.findall(r"\[object \w+|\b(?:null|undefined|NaN)\b", text)
        context.close()
    assert trouble == []
