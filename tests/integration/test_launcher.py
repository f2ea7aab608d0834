"""`./pih`, the launcher: what stops it before there is a program is told in pih's words."""

import os
import shutil
import subprocess

import pytest

from tests.support.program import ROOT


@pytest.fixture
def checkout(tmp_path):
    """The launcher and what it reads, without .venv."""
    made = tmp_path / "check out"
    (made / "requirements").mkdir(parents=True)
    for name in ("pih", "requirements/build.txt"):
        shutil.copy(ROOT / name, made / name)
    return made


def refused(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert done.stderr.startswith("pih: cannot write "), done.stderr
    assert "to fix: run ./pih once as a user who may write there" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_checkout_that_cannot_be_written(checkout):
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    if subprocess.run([*prefix, read_only, checkout, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host mounts nothing in a user namespace")
    refused(*prefix, read_only, checkout, checkout / "pih", "--version")
    assert sorted(path.name for path in checkout.iterdir()) == ["pih", "requirements"]


@pytest.mark.parametrize("name", ["a:b", "a\nb"])
def test_a_path_that_can_hold_no_virtual_environment(checkout, name):
    moved = checkout.rename(checkout.parent / name)
    done = subprocess.run([moved / "pih", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert "cannot hold a virtual environment" in done.stderr
    assert done.stderr.endswith("to fix: move the source tree\n")
    assert not (moved / ".venv").exists()


def test_something_else_in_the_way_of_the_lock(checkout):
    (checkout / ".venv.lock").mkdir()
    refused(checkout / "pih", "--version")


def test_a_python_whose_path_has_a_space(checkout):
    """It is new enough, and makes no virtual environment: so it was asked."""
    own = checkout / "my python"
    own.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    own.chmod(0o755)
    environment = {**os.environ, "PIH_PYTHON": str(own)}
    done = subprocess.run([checkout / "pih"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert "pih: cannot make a virtual environment" in done.stderr


def test_a_path_that_the_locale_has_no_letters_for(checkout):
    moved = checkout.rename(checkout.parent / "ünï")
    (moved / "requirements/build.txt").write_text("")
    (moved / "resolver/pih").mkdir(parents=True)
    (moved / "resolver/pih/__main__.py").write_text("print(__file__)")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run([moved / "pih"], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == f"{moved}/resolver/pih/__main__.py\n"
