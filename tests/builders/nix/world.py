"""Nix as a test runs it: a store of its own, the sandbox on, no binary cache; and a copy of the source tree to edit."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pih import lock as locks
from pih.build import nix, nix_log
from pih.build.progress import silent
from pih.build.store import open_store
from pih.cli._workspace import IMAGE
from tests.support.checkout import copied
from tests.support.locks import sealed_text

LOCK = "profiles/smollm2-cpu.lock.json"

CONFIGURATION = """
experimental-features = nix-command flakes
build-users-group =
substituters =
sandbox = true
sandbox-fallback = false
"""


@dataclass(frozen=True)
class World:
    """folder: of the Nix store. tree: the copy of the source tree, a git repository."""

    folder: Path
    tree: Path
    environment: dict[str, str]

    def run(self, *command, check=True, cwd=None):
        """A command of Nix in the copied tree."""
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd or self.tree,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def build(self, installable, *options, check=True, cwd=None):
        """`nix build`: what it printed, and the derivations that it built."""
        done = self.run(
            "nix", "build", installable, "--no-link", "--log-format", "internal-json", *options, check=check, cwd=cwd
        )
        return done, nix_log.follow(done.stderr.splitlines(keepends=True), silent).built

    def path(self, installable, *options, cwd=None):
        """Where the store has an installable's output."""
        return Path(
            json.loads(self.run("nix", "path-info", "--json", installable, *options, cwd=cwd).stdout)[0]["path"]
        )

    def evaluate(self, installable, *options, cwd=None):
        """`nix eval --json`."""
        return json.loads(self.run("nix", "eval", "--json", installable, *options, cwd=cwd).stdout)

    def pih(self, *arguments, check=True, cwd=None):
        """The copied tree's own program, in this world."""
        environment = self.environment | {"PYTHONPATH": f"{self.tree}/resolver:{self.tree}/runtime"}
        command = [sys.executable, "-B", "-m", "pih", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=cwd or self.tree, env=environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def remote(self, folder):
        """The same with another, fresh store, for paths of the same names: one on a second machine, as it were."""
        return World(folder, self.tree, self.environment | {"NIX_REMOTE": f"local?root={folder}"})


def ours(world):
    """What `pih build --builder nix` calls."""
    path = world.tree / LOCK
    return nix.build(
        locks.read(path),
        path,
        world.tree,
        open_store(Path(world.environment["PIH_STORE"])),
        target=IMAGE,
        jobs=0,
        offline=True,
        environment=world.environment,
        listener=silent,
    )


def create(folder, **more):
    """A world below `folder`; `more` is in its environment too."""
    places = {name: folder / name for name in ("conf", "store", "state", "log", "home", "tree")}
    for place in places.values():
        place.mkdir(parents=True)
    (places["conf"] / "nix.conf").write_text(CONFIGURATION)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NIX_")} | {
        "NIX_CONF_DIR": str(places["conf"]),
        "NIX_STORE_DIR": str(places["store"]),
        "NIX_STATE_DIR": str(places["state"]),
        "NIX_LOG_DIR": str(places["log"]),
        "HOME": str(places["home"]),
        "PIH_STORE": pih_store(),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **more,
    }
    copied(places["tree"])
    world = World(folder, places["tree"], environment)
    commit(world)
    return world


def pih_store():
    """The user's store, whatever HOME is set to."""
    from pih.build.store import default_root

    return str(default_root(os.environ))


def commit(world, cwd=None):
    """A flake sees only what git does."""
    author = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "--allow-empty", "-m", "tests"]):
        world.run("git", *command, cwd=cwd)


def remove(folder):
    """Remove a Nix store. Its folders are read-only; its files may be hard links of others' and stay as they are."""
    for place, _, _ in os.walk(folder):
        Path(place).chmod(0o755)
    shutil.rmtree(folder)


def edited(world, name, old, new):
    """A file of the tree with a change, a lock as one that was written so; returns what it was."""
    path = world.tree / name
    before = path.read_text()
    assert old in before
    after = before.replace(old, new, 1)
    path.write_text(sealed_text(after) if name.endswith(".lock.json") else after)
    return before
