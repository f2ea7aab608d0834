"""The project's .nix files, and the linter that reads them."""

import re
import subprocess
import sys

import pytest

from tests.support.program import ROOT


def test_the_files_of_nix_are_well():
    done = subprocess.run([sys.executable, ROOT / "tools/nix/lint"], capture_output=True, text=True, check=False)
    if "No module named 'tree_sitter" in done.stderr:
        pytest.skip("tree-sitter-nix is not installed")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{ a, b }: a\n", "1: nothing uses b"),
        ("let\n  inherit (c) d;\nin\n1\n", "2: nothing uses d"),
        ("x: with x; y\n", "1: `with` hides where names come from"),
        ("{ a = ; }\n", "1: not Nix"),
        ("{\n   a = 1;\n}\n", "2: indented by an odd number of spaces"),
        ("{ }", "0: ends with another than one end of line"),
    ],
)
def test_the_linter_finds(tmp_path, text, problem):
    path = tmp_path / "x.nix"
    path.write_text(text)
    done = subprocess.run([sys.executable, ROOT / "tools/nix/lint", path], capture_output=True, text=True, check=False)
    if "No module named 'tree_sitter" in done.stderr:
        pytest.skip("tree-sitter-nix is not installed")
    assert done.returncode == 1
    assert f"{path}:{problem}" in done.stdout.splitlines()


def test_no_file_of_nix_names_an_address():
    for path in (ROOT / "flake.nix", ROOT / "default.nix", *(ROOT / "tools/nix").rglob("*.nix")):
        assert not re.search(r"[a-z]+://", path.read_text()), path
