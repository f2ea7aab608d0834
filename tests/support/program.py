"""The program as a user runs it."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "profiles/smollm2-cpu.toml"


def pih(*arguments, environment=None, cwd=ROOT, check=True):
    """Run ./pih; the answer on stdout."""
    run = subprocess.run(
        [str(ROOT / "pih"), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert not check or run.returncode == 0, run.stderr
    return run
