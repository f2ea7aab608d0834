"""The same lock and source tree give the same image digest, whatever the surroundings."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import poison
from tests.support.checkout import copied
from tests.support.program import PROFILE, ROOT, pih

PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


def newer_pythons():
    """Interpreters after 3.11 on this host, one of each minor version."""
    found = {}
    for minor in range(12, 20):
        places = [shutil.which(f"python3.{minor}"), *sorted(map(str, PYENV.glob(f"3.{minor}.*/bin/python3")))]
        for place in filter(None, places):
            runs = subprocess.run(
                [place, "-c", "import venv, sys; print(sys.version_info[1])"], capture_output=True, check=False
            )
            if runs.stdout.strip() == str(minor).encode():
                found[minor] = place
    return found


@pytest.fixture(scope="module")
def digest():
    return json.loads(pih("build", "--profile", PROFILE, "--json").stdout)["digest"]


def rebuilt(tree, scratch, prefix=(), **environment):
    """Digest of a build in an empty store, with the artifacts of the first one as a mirror, and nothing else."""
    mirror = Path(pih("store", "path").stdout.strip()) / "sha256"
    run = subprocess.run(
        [*prefix, str(tree / "pih"), "build", "--profile", PROFILE, "--json", "--offline"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIH_STORE": str(scratch / "store"), "PIH_MIRROR": str(mirror), **environment},
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert "image" in answer["steps_run"]
    shutil.rmtree(scratch / "store")
    return answer["digest"]


def test_another_place_zone_umask_home_locale_and_cpu_count(digest, tmp_path):
    tree = copied(tmp_path / "else where" / "pih")
    home = tmp_path / "home"
    home.mkdir()
    surroundings = {"TZ": "Pacific/Kiritimati", "HOME": str(home), "LC_ALL": "tr_TR.UTF-8"}
    prefix = ("taskset", "--cpu-list", "0", "sh", "-c", 'umask 077; exec "$@"', "sh")
    assert rebuilt(tree, tmp_path, prefix, **surroundings) == digest


def test_poisoned_surroundings_do_not_leak_in(digest, tmp_path):
    poisoned = poison.environment(tmp_path / "poison")
    step = subprocess.run([sys.executable, "-S", "-c", "", "pih_steps"], env={**os.environ, **poisoned}, check=False)
    assert step.returncode == poison.ENDED, "the poison does no harm"
    assert rebuilt(ROOT, tmp_path, **poisoned) == digest


@pytest.mark.where_possible
def test_a_newer_host_python(digest, tmp_path):
    pythons = newer_pythons()
    if not pythons:
        pytest.skip("no Python after 3.11 on this host")
    tree = copied(tmp_path / "newer")
    for python in pythons.values():
        assert rebuilt(tree, tmp_path, PIH_PYTHON=python) == digest, python
        shutil.rmtree(tree / ".venv")
