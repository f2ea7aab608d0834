"""What `bazel run //profiles:NAME.load` runs, read from the rule that writes it."""

import shutil
import subprocess

import pytest

from tests.support.program import ROOT


@pytest.fixture
def load(tmp_path):
    """Runs it where podman is the only engine; gives its process."""
    script = (ROOT / "tools/bazel/load.bzl").read_text().split('"""')[3]
    (tmp_path / "podman").write_text('#!/bin/sh\necho podman "$@"\n')
    (tmp_path / "podman").chmod(0o755)
    shell = shutil.which("sh")

    def run(**environment):
        command = [shell, "-c", script % "image.tar"]
        own = {"PATH": str(tmp_path), **environment}
        return subprocess.run(command, env=own, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize("environment", [{}, {"PIH_ENGINE": ""}, {"PIH_ENGINE": "podman"}])
def test_the_engine_of_this_host_loads_the_image(load, environment):
    assert load(**environment).stdout == "podman load -i image.tar\n"


def test_an_engine_that_is_named_and_not_there_is_told_by_its_name(load):
    done = load(PIH_ENGINE="no such")
    assert done.returncode == 9
    assert done.stderr.startswith("PIH_ENGINE names no program of this host: no such\n  to fix: ")


def test_a_host_without_an_engine(load):
    assert load(PATH="/nonexistent").stderr.startswith("no podman and no docker: install one")
