"""A lock as a git revision has it: read from git's objects, nothing is checked out."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from pih import lock as locks
from pih.lock import Lock
from pih_runtime.errors import LockError, UsageError

_OBJECT = re.compile(rb"[0-9a-f]{40,64}\n")
_SECONDS = 60
_MOST = 1 << 26  # bytes; a lock has a thousandth of it


def read(revision: str, path: Path) -> Lock:
    """The lock at a path of the working tree, as `revision` has it; raises UsageError where it has none there."""
    folder = path.parent if path.parent.is_dir() else Path.cwd()
    # `./` makes git take the path from its folder, and no revision begins with a dash
    return _lock(folder, f"{revision}:./{path.name}", f"{revision}:{path}")


def read_named(name: str) -> Lock:
    """The lock that git itself calls `REV:PATH`: from the top of the repository, or `REV:./PATH` from here."""
    return _lock(Path.cwd(), name, name)


def _lock(folder: Path, name: str, where: str) -> Lock:
    fix = "name a lock as git does, REV:PATH from the top of the repository, e.g. main:profiles/smollm2-cpu.lock.json"
    if name.startswith("-"):
        raise UsageError(f"{name!r} is no revision", fix=fix)
    found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if found.returncode or not _OBJECT.fullmatch(found.stdout):
        said = found.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(f"git has no such file{': ' + said[-1] if said else ''}", where=where, fix=fix)
    identity = found.stdout.decode().strip()
    size = _git(folder, "cat-file", "-s", identity)
    if not size.stdout.strip().isdigit() or int(size.stdout) > _MOST:
        raise LockError("no file of a lock's size", where=where, fix=fix)
    blob = _git(folder, "cat-file", "blob", identity)
    if blob.returncode:
        raise LockError("not a file in that revision", where=where, fix=fix)
    return locks.from_json(blob.stdout, where)


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # a partial clone would fetch a missing object: this reads what is here
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            check=False,
            env=environment,
            timeout=_SECONDS,
        )
    except FileNotFoundError as missing:
        raise UsageError("git is not installed", fix="install git, or name two files") from missing
    except subprocess.TimeoutExpired as slow:
        raise UsageError(f"git did not answer in {_SECONDS} s", fix="name two files") from slow
