"""Files made to hurt their reader: read or refused in few words, in little time and memory, each of them measured."""

import functools
import json
import os
import subprocess
import sys

import pytest

from pih_runtime.errors import PihError
from tests.support import hostile

SECONDS = 10  # of CPU; the worst takes 1.4 on a quiet machine
TOML_BYTES = 200 << 20  # for 1 MiB of TOML: numbers of a million digits take 120 MB
JSON_BYTES = 500 << 20  # for 16 MiB of JSON: five million empty tables take 430 MB
WORDS = 700
ALL = [(name, case) for name, cases in hostile.CASES.items() for case in cases]


@functools.cache
def read(name, folder):
    """What each case costs this reader, in a process of its own with limits that end it if it runs away."""
    command = [sys.executable, "-m", "tests.support.hostile", name, str(folder / name)]
    done = subprocess.run(command, cwd=hostile.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {found.pop("case"): found for found in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.mark.parametrize(("name", "case"), ALL)
def test_no_file_upsets_its_reader(folder, name, case):
    found = read(name, folder)[case]
    assert found["ended"] in ("read", "refused")
    assert found["seconds"] < SECONDS
    assert found["memory"] < (TOML_BYTES if name in ("profile", "manifest") else JSON_BYTES)
    assert len(found["words"]) < WORDS
    assert "\0" not in found["words"]


def zeros(path):
    path.symlink_to("/dev/zero")


def pipe(path):
    os.mkfifo(path)


def sparse(path):
    path.touch()
    os.truncate(path, 10 << 30)


@pytest.mark.parametrize("make", [os.mkdir, zeros, pipe, sparse])
@pytest.mark.parametrize("name", hostile.CASES)
def test_what_is_no_plain_file_is_refused(tmp_path, name, make):
    path, reading = hostile.reader(name, tmp_path)
    make(path)
    with pytest.raises(PihError) as caught:
        reading()
    assert str(path.name) in str(caught.value)
