"""A newer Bazel is fetched once, whoever asks for it at the same time."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.builders.bazel import world

# two at once would both get past the first line before either has made its folder
FETCHER = """#!/bin/sh
[ ! -e "$1" ] || exit 1
echo fetched >>"$1.log"
sleep 0.5
mkdir "$1"
touch "$1/bazel"
"""


@pytest.fixture
def fetcher(tmp_path, monkeypatch):
    """Stands for get-bazel7."""
    program = tmp_path / "fetcher"
    program.write_text(FETCHER)
    program.chmod(0o755)
    monkeypatch.setattr(world, "GET_BAZEL7", program)


@pytest.mark.usefixtures("fetcher")
def test_of_two_who_need_it_at_once_one_fetches_it(tmp_path):
    with ThreadPoolExecutor(2) as both:
        assert len({*both.map(lambda _: world.program(7, tmp_path), range(2))}) == 1
    assert (tmp_path / "bazel-7.log").read_text() == "fetched\n"


@pytest.mark.usefixtures("fetcher")
def test_what_a_killed_fetch_left_is_fetched_anew(tmp_path):
    (tmp_path / "bazel-7/usr").mkdir(parents=True)
    assert world.program(7, tmp_path).exists()


def test_a_folder_that_is_there_stays_as_it_is(tmp_path):
    done = subprocess.run([world.GET_BAZEL7, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"get-bazel7: {tmp_path} is there already: name a new folder\n"
    assert tmp_path.is_dir()


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--nosuch"], 2), ([], 2)])
def test_an_option_is_no_folder(tmp_path, arguments, code):
    nothing = {**os.environ, "PATH": str(tmp_path)}  # no apt to fetch a Bazel with
    command = [sys.executable, world.GET_BAZEL7, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=nothing, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "get-bazel7 [-h] FOLDER" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
