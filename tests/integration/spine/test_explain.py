"""`pih explain` of the shipped profile: plain where it is read by a program, a drawn tree on a terminal."""

import json
import os
import pty
import subprocess

from tests.support.program import PROFILE, ROOT, pih


def test_plain_text_is_indented():
    said = pih("explain", "--profile", PROFILE).stdout.splitlines()
    assert "    kernels.pack 1.0 → kernels/cpu 0.1.0" in said
    assert "      backend/cpu requires kernels.pack >=1.0,<2" in said
    assert not [line for line in said if "├" in line or "\x1b" in line]


def test_a_terminal_gets_a_tree():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen([ROOT / "pih", "explain", "--profile", PROFILE], cwd=ROOT, stdout=theirs, env=environment):
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    assert "├── capabilities".encode() in shown
    assert "│   ├── backend.device 1.0 → backend/cpu 0.1.0".encode() in shown


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux tells that the other end is closed
        return b""


def test_json():
    said = json.loads(pih("explain", "--profile", PROFILE, "--json").stdout)
    assert {"profile", "target", "capabilities", "ops", "fallbacks", "budget", "artifacts", "lines"} <= said.keys()
