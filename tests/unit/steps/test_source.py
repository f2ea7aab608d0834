"""The digest of a source tree, against the command that its page names."""

import subprocess

import pytest

from pih_steps import source

COMMAND = "find -L . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "b").mkdir(parents=True)
    for name in ("a.c", "b/x.h", "b-x", "Z", "é"):
        (root / name).write_text(name)
    return root


def test_anybody_can_make_it_again(tree):
    said = subprocess.run(["sh", "-c", COMMAND], cwd=tree, capture_output=True, text=True, check=True).stdout
    assert source.digest(tree) == f"dirHash:{said.split()[0]}"
    said = subprocess.run(["sha256sum", tree / "Z"], capture_output=True, text=True, check=True).stdout
    assert source.digest(tree / "Z") == f"sha256:{said.split()[0]}"


def test_names_and_bytes_count_and_nothing_else(tree, tmp_path):
    before = source.digest(tree)
    (tree / "a.c").chmod(0o755)
    (tree / "empty").mkdir()
    (tmp_path / "link").symlink_to(tree)
    assert source.digest(tree) == source.digest(tmp_path / "link") == before
    (tree / "a.c").rename(tree / "c.c")
    assert source.digest(tree) != before
