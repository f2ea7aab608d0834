"""A power cut or a full disk at any moment of a change: the old or the new generation runs, never neither."""

import fcntl
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from tests.support.carried import carried, sh
from tests.support.disk import on_small_disk

CUTS = 200


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return [carried(folder, text) for text in ("one", "two", "three")]


def settled(prefix):
    """Wait for what was killed to be gone: a process in a system call lives on until that returns."""
    with suppress(FileNotFoundError), (prefix / ".pih/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def worker(prefix):
    return sh(prefix / "pih", "start", "--no-sandbox").stdout.strip()


def test_killed_at_random_moments(made, tmp_path):
    """Each time a whole process group is killed, so that no child of the script goes on. Only one generation stays:
    so the other is unpacked each time, unless it was killed before the old one went. The moments are spread over
    what a change takes, and follow the machine, which may be slower or faster from one change to the next: one that
    was killed before its switch makes the next moments later, one that had switched makes them earlier."""
    prefix = tmp_path / "pih"
    sh(made[0], "install", "--prefix", prefix)
    began = time.monotonic()
    sh(made[1], "upgrade", "--prefix", prefix)
    lasts = time.monotonic() - began
    chance = random.Random(5)
    current, killed, switched, attempts = 1, 0, 0, 0
    while killed < CUTS:
        attempts += 1
        assert attempts < 4 * CUTS, "the changes are done before they are killed"
        other = 1 - current
        command = ["sh", made[other], "upgrade", "--prefix", prefix, "--keep", "1"]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        ) as run:
            time.sleep(chance.uniform(0, lasts))
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
        settled(prefix)
        killed += run.returncode == -signal.SIGKILL
        after = worker(prefix)
        assert after in ("worker of one", "worker of two")
        now = ["worker of one", "worker of two"].index(after)
        switched += now != current and run.returncode == -signal.SIGKILL
        lasts *= 1.03 if now == current else 0.97
        current = now
    assert 0 < switched < CUTS, "all were killed on one side of the switch"
    sh(prefix / "pih", "status", "--check")
    settled(prefix)
    # the next change takes away whatever was left
    sh(made[1 - current], "upgrade", "--prefix", prefix, "--keep", "1")
    assert sorted(path.name for path in prefix.iterdir()) == [".pih", "current", "generations", "pih"]
    assert len(list((prefix / "generations").iterdir())) == 1


@pytest.mark.parametrize("file", [1, 2], ids=["what is there", "another"])
def test_killed_after_a_rollback_there_is_a_way_back(made, tmp_path, file):
    """Whatever came of the upgrade: the generation that ran still does, or is what `rollback` goes to."""
    before, whole = tmp_path / "before", tmp_path / "whole"
    sh(made[0], "install", "--prefix", before)
    sh(made[1], "upgrade", "--prefix", before)
    sh(before / "pih", "rollback")
    shutil.copytree(before, whole, symlinks=True)
    began = time.monotonic()
    sh(made[file], "upgrade", "--prefix", whole, "--keep", "2")
    lasts = time.monotonic() - began
    chance = random.Random(8)
    for number in range(20):
        prefix = tmp_path / str(number)
        shutil.copytree(before, prefix, symlinks=True)
        command = ["sh", made[file], "upgrade", "--prefix", prefix, "--keep", "2"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as run:
            time.sleep(chance.uniform(lasts / 2, lasts))
            os.killpg(run.pid, signal.SIGKILL)
        settled(prefix)
        if worker(prefix) != "worker of one":
            sh(prefix / "pih", "rollback")
        assert worker(prefix) == "worker of one"
        sh(prefix / "pih", "status", "--check")
        shutil.rmtree(prefix)


def test_killed_while_installing_first(made, tmp_path):
    began = time.monotonic()
    sh(made[0], "install", "--prefix", tmp_path / "whole")
    lasts = time.monotonic() - began
    chance = random.Random(6)
    for number in range(20):
        prefix = tmp_path / str(number)
        with subprocess.Popen(
            ["sh", made[0], "install", "--prefix", prefix], stderr=subprocess.DEVNULL, start_new_session=True
        ) as run:
            time.sleep(chance.uniform(0, 1.2 * lasts))
            os.killpg(run.pid, signal.SIGKILL)
        settled(prefix)
        sh(made[0], "install", "--prefix", prefix)
        assert worker(prefix) == "worker of one"
        assert sorted(path.name for path in prefix.iterdir()) == [".pih", "current", "generations", "pih"]


def test_stopped_by_a_signal_it_takes_away_what_it_made(made, tmp_path):
    prefix = tmp_path / "pih"
    sh(made[0], "install", "--prefix", prefix)
    began = time.monotonic()
    sh(made[1], "upgrade", "--prefix", prefix)
    lasts = time.monotonic() - began
    sh(made[0], "upgrade", "--prefix", prefix, "--keep", "1")
    chance = random.Random(7)
    for sent in [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT] * 3:
        with subprocess.Popen(
            ["sh", made[1], "upgrade", "--prefix", prefix], stderr=subprocess.DEVNULL, start_new_session=True
        ) as run:
            time.sleep(chance.uniform(0, lasts))
            os.killpg(run.pid, sent)
            run.wait()
        assert not list((prefix / "generations").glob("*.partial"))
        assert worker(prefix) in ("worker of one", "worker of two")
        sh(made[0], "upgrade", "--prefix", prefix, "--keep", "1")


@pytest.fixture
def small_disk(tmp_path):
    """Runs a script with a file system of a few blocks at $DISK."""
    disk = tmp_path / "disk"
    disk.mkdir()
    return lambda size, script: on_small_disk(size, script, disk)


@pytest.mark.parametrize("kilobytes", [0, 4, 8, 12, 16, 24, 40])
def test_a_full_disk(made, small_disk, kilobytes):
    """The room that was there when it was checked is taken by somebody else meanwhile: by a df that tells too much."""
    run = small_disk(
        "1m",
        f"""
        sh {made[0]} install --prefix $DISK/pih 2>&1 || exit 100
        mkdir $DISK/bin
        printf '#!/bin/sh\\necho none 999999 0 999999 0%% /\\n' >$DISK/bin/df
        chmod +x $DISK/bin/df
        dd if=/dev/zero of=$DISK/fill bs=4096 2>/dev/null
        truncate -s -{kilobytes}K $DISK/fill
        PATH=$DISK/bin:$PATH sh {made[1]} upgrade --prefix $DISK/pih
        echo "code $?"
        sh $DISK/pih/pih start --no-sandbox
        sh $DISK/pih/pih status --check
        ls -A $DISK/pih $DISK/pih/generations
        """,
    )
    assert "code 9" in run.stdout, run.stdout + run.stderr
    assert "worker of one" in run.stdout
    assert "files: yes" in run.stdout
    assert ".partial" not in run.stdout
    assert "pih: error" in run.stderr


def test_too_small_a_disk_is_told_before_anything_is_written(made, small_disk):
    run = small_disk("16k", f"sh {made[0]} install --prefix $DISK/pih; echo code $?; ls -A $DISK")
    assert run.stdout == "code 9\n"
    assert "are free" in run.stderr
