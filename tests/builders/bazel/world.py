"""Bazel as a test runs it: an output folder of its own, no network but the loopback, a copy of the source tree."""

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pih.build.store import measure
from tests.support import checkout
from tests.support.locks import sealed_text
from tests.support.program import ROOT
from tests.support.shared import alone

GET_BAZEL7 = ROOT / "tools/bazel/get-bazel7"
LATER = "it cannot be installed from a package registry here: written for, not run"


@contextmanager
def no_network():
    """A command's prefix: it runs in a network of its own that has the loopback alone."""
    for program in ("unshare", "nsenter", "ip"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    holder = subprocess.Popen(
        ["unshare", *own, "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"up\n", "no network namespace can be made"
        user = ["--user", "--preserve-credentials"] if own else []
        yield ["nsenter", *user, "--net", "--target", str(holder.pid)]
    finally:
        holder.stdin.close()
        holder.wait()


def program(version, keep):
    """The bazel of a version; skips where it cannot be had. keep: a folder for what is downloaded."""
    if version == 4:
        found = shutil.which("bazel")
        if not found:
            pytest.skip("Bazel is not installed (Debian: bazel-bootstrap)")
        return Path(found)
    if version > 7:
        pytest.skip(f"Bazel {version}: {LATER}")
    folder = keep / "bazel-7"
    with alone(folder):
        if not (folder / "bazel").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
            made = subprocess.run([GET_BAZEL7, folder], capture_output=True, text=True, check=False)
            if made.returncode == 3:
                pytest.skip(made.stderr.splitlines()[-1])
            assert made.returncode == 0, made.stderr
    return folder / "bazel"


def copied(target):
    """The source tree as git would check it out, to be edited; with this checkout's environment of tests."""
    checkout.copied(target)
    (target / ".venv-dev").symlink_to(ROOT / ".venv-dev")
    return target


@dataclass(frozen=True)
class Bazel:
    """program: its binary. folder: of its outputs. tree: the workspace. prefix: of every command.

    of_tests: options of `bazel test`.
    """

    program: Path
    folder: Path
    tree: Path
    prefix: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    of_tests: tuple[str, ...] = ()

    def run(self, *arguments, check=True):
        """`bazel ARGUMENTS`."""
        start = [f"--output_user_root={self.folder}", "--max_idle_secs=300"]
        done = subprocess.run(
            [*self.prefix, str(self.program), *start, *map(str, arguments)],
            cwd=self.tree,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr  # what failed tests said is on stdout
        return done

    def test(self, *targets, check=True):
        """`bazel test TARGETS`."""
        return self.run("test", *self.of_tests, *targets, check=check)

    def build(self, *arguments, check=True):
        """`bazel build ARGUMENTS`: what it said, and the actions that it ran or found in a remote cache."""
        log = self.folder.with_suffix(".json")
        log.unlink(missing_ok=True)
        done = self.run("build", f"--execution_log_json_file={log}", *arguments, check=check)
        return done, executed(log)

    def output(self, name):
        """Where this Bazel's builds put it; the link in the tree is that of whichever Bazel built last."""
        return Path(self.run("info", "bazel-bin").stdout.strip()) / name

    def installed(self, folder):
        """This Bazel as `bazel` in a folder for PATH."""
        folder.mkdir()
        start = f"--output_user_root={self.folder} --max_idle_secs=300"
        script = f'#!/bin/sh\nexec {" ".join(self.prefix)} {self.program} {start} "$@"\n'
        (folder / "bazel").write_text(script)
        (folder / "bazel").chmod(0o755)
        return folder


@contextmanager
def bazel(*arguments, **more):
    """A Bazel whose server ends with the test, and whose outputs go away."""
    made = Bazel(*arguments, **more)
    try:
        yield made
    finally:
        made.run("shutdown", check=False)
        remove(made.folder)


@contextmanager
def servers_end(made, store):
    """What `pih build --builder bazel` leaves running for a store ends with the block, and its outputs go away."""
    try:
        yield
    finally:
        for outputs in (store / "bazel/outputs").glob("*"):
            made.run(f"--output_base={outputs}", "shutdown", check=False)
            remove(outputs)


@contextmanager
def elsewhere(made, folder, **changes):
    """The same Bazel on a second machine: nothing of what the first has made is there."""
    changes = {"program": made.program, "tree": made.tree, "prefix": made.prefix, **changes}
    with bazel(folder=folder, environment=made.environment, of_tests=made.of_tests, **changes) as second:
        yield second


def executed(log):
    """(mnemonic, name of the output, found in a cache?) of each action in an execution log."""
    text = log.read_text() if log.exists() else ""
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(text):
        action, place = decoder.raw_decode(text, place)
        place += len(text[place:]) - len(text[place:].lstrip())
        cached = bool(action.get("cacheHit") or action.get("remoteCacheHit"))
        found.append((action["mnemonic"], action["listedOutputs"][0].rpartition("/")[2], cached))
    return found


def steps(actions):
    """The steps among actions."""
    return {name for mnemonic, name, _ in actions if mnemonic == "PihStep"}


def files(layout):
    """Every file's digest; Bazel makes all that it builds executable."""
    return {path.relative_to(layout).as_posix(): measure(path)[0] for path in layout.rglob("*") if path.is_file()}


def remove(folder):
    """Bazel takes the right to write from what it has made."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


def edited(tree, name, change):
    """Change a file of the copied tree, a lock as one that was written so; gives the way back."""
    path = tree / name
    before = path.read_text()
    after = change(before)
    assert after != before
    path.write_text(sealed_text(after) if name.endswith(".lock.json") else after)
    return lambda: path.write_text(before)
