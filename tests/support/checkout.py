"""The source tree as git would check it out, in a place where a test may edit it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.program import ROOT


def copied(target):
    """A copy of every file that is tracked or new."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def pih_of(tree, *arguments, prefix=(), check=True, **environment):
    """The copied tree's own program, by this interpreter. prefix: a command that starts it."""
    done = subprocess.run(
        [*prefix, sys.executable, "-B", "-m", "pih", *map(str, arguments)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree}/resolver:{tree}/runtime", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def edited(path: Path, old, new):
    """Change a file in one place; gives what it was."""
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))
    return before
