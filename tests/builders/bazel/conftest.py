"""One Bazel of each version for all tests, in one copy of the source tree."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.builders.bazel import world
from tests.support import poison
from tests.support.checkout import pih_of
from tests.support.program import PROFILE, ROOT, pih

IMAGE = "//profiles:smollm2-cpu"
SYNTHETIC = "profiles/qwen3-cpu-synthetic.toml"
DEVICE = "profiles/qwen3-4090d.toml"

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/temporary;
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:8080;
        root {folder}/files;
        dav_methods PUT;
        create_full_put_path on;
    }}
}}
"""


@pytest.fixture(scope="session")
def network():
    """The prefix of commands that run without a network."""
    with world.no_network() as prefix:
        yield prefix


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """A copy of the source tree, which tests may edit."""
    return world.copied(tmp_path_factory.mktemp("tree") / "pih")


@pytest.fixture(scope="session")
def fetched():
    """The artifacts are in the store, the seed among them; gives the store."""
    for profile in (PROFILE, SYNTHETIC, DEVICE):
        pih("fetch", "--profile", profile)
    return Path(pih("store", "path").stdout.strip())


@pytest.fixture
def store_apart(fetched):
    """A store of the same artifacts that does not lie in /tmp, where the tree does: /tmp is what sandboxes hide."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / "sha256").symlink_to(fetched / "sha256")
        yield Path(folder)


@pytest.fixture(scope="session")
def embedded(tree, fetched):
    """Layouts that the embedded builder gives for the same tree, by profile."""
    made = {}
    for profile in (PROFILE, SYNTHETIC, DEVICE):
        made[profile] = Path(
            json.loads(pih_of(tree, "build", "--offline", "--profile", profile, "--json").stdout)["layout"]
        )
    return made


def _bazel(version, request, tmp_path_factory):
    program = world.program(version, ROOT / ".venv-dev")
    tree, network, fetched = map(request.getfixturevalue, ("tree", "network", "fetched"))
    folder = tmp_path_factory.mktemp(f"bazel{version}")
    environment = {"PIH_STORE": str(fetched), **poison.environment(folder / "poison")}
    # A newer Bazel's sandbox has a /tmp of its own, and in it, read-only, the folder of /tmp that the tree lies in:
    # pytest's, where the tests inside want to write.
    of_tests = ("--noincompatible_sandbox_hermetic_tmp",) if version > 4 and tree.is_relative_to("/tmp") else ()
    return world.bazel(program, folder / "out", tree, network, environment, of_tests)


@pytest.fixture(scope="session")
def first4(request, tmp_path_factory, remote_cache):
    """Bazel 4, which reads WORKSPACE.bazel, after a build of the image that no cache had; what that ran."""
    with _bazel(4, request, tmp_path_factory) as made:
        yield made, made.build(IMAGE, remote_cache)[1]


@pytest.fixture(scope="session")
def first7(request, tmp_path_factory, remote_cache):
    """The same of Bazel 7, which reads MODULE.bazel."""
    with _bazel(7, request, tmp_path_factory) as made:
        yield made, made.build(IMAGE, remote_cache)[1]


@pytest.fixture(scope="session")
def bazel4(first4):
    """Bazel 4 that has built the image, and anything else that another test asked for."""
    return first4[0]


@pytest.fixture(scope="session")
def bazel7(first7):
    """The same of Bazel 7."""
    return first7[0]


@pytest.fixture(scope="session")
def remote_cache(network, tmp_path_factory):
    """Flags of an HTTP remote cache that is up: nginx with WebDAV."""
    if not shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("cache")
    (folder / "files").mkdir()
    folder.chmod(0o777)
    (folder / "files").chmod(0o777)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder) + ("user root;\n" if os.geteuid() == 0 else ""))
    server = subprocess.Popen(
        [*network, shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), "-c", folder / "nginx.conf"]
    )
    while not (folder / "pid").exists():
        assert server.poll() is None, (folder / "error.log").read_text()
        time.sleep(0.05)
    yield "--remote_cache=http://127.0.0.1:8080"
    server.terminate()
    server.wait()
