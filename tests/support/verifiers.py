"""Other people's readers of SBOMs, statements and envelopes, in an environment of their own beside the tests'."""

import functools
import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.shared import alone

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements" / "verifiers.txt"
PROGRAM = ROOT / "tests" / "integration" / "seal" / "independent.py"


@functools.cache
def _python():
    """Its interpreter; the environment is made on first use, from hash-pinned requirements."""
    place = Path(sys.prefix) / "verifiers"
    made = place / "made"
    with alone(place):
        if not made.is_file() or made.read_text() != PINS.read_text():
            venv.create(place, clear=True, with_pip=True)
            command = [place / "bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", PINS]
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"the independent verifiers cannot be installed: {done.stderr.strip()[-300:]}")
            made.write_text(PINS.read_text())
    return place / "bin/python"


def ask(what, *words):
    """What independent.py finds; fails where it does."""
    command = [str(_python()), "-I", str(PROGRAM), what, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
