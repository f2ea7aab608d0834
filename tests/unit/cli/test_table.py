"""Text of a bundle on a terminal."""

import json
import subprocess
import sys

import pytest

from pih.cli import _table
from tests.support.program import ROOT
from tests.unit.inspect.test_opened import LINE, TEXT, listing


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain → text ✓ ü", "plain → text ✓ ü"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egpj.exe\u200f", "\\u202egpj.exe\\u200f"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_moves_the_cursor_or_turns_the_line(text, shown):
    assert _table.printable(text) == shown


@pytest.mark.parametrize("form", [[], ["--files"], ["--tree"]])
def test_a_hostile_bundle_is_shown_and_does_nothing(tmp_path, form):
    hostile = "\x1b]0;title\x07\u202e\n"
    line = {**LINE, "path": f"/{hostile}", "component": hostile, "reason": hostile, "size": 10, "layer": hostile}
    (tmp_path / "pih").mkdir()
    (tmp_path / "pih/lock.json").write_bytes(TEXT)
    (tmp_path / "pih/bundle.json").write_text(json.dumps(json.loads(listing()) | {"name": hostile, "files": [line]}))
    program = [sys.executable, "-m", "pih", "inspect", str(tmp_path), *form]
    run = subprocess.run(
        program,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "resolver",
        env={"PYTHONPATH": f"{ROOT}/resolver:{ROOT}/runtime", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert "\\x1b]0;title" in run.stdout
    assert not set("\x1b\x07\u202e") & set(run.stdout)
