"""What a source tree may hold: the same to every builder, or refused in words."""

import os
import socket

import pytest

from pih_runtime.errors import BuildError
from pih_steps.spec import check_tree

TREE = "plugins/model/llama"


@pytest.fixture
def root(tmp_path):
    (tmp_path / TREE / "package").mkdir(parents=True)
    (tmp_path / TREE / "package/a.py").write_text("x = 1\n")
    return tmp_path


def _socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("place", "make", "words"),
    [
        ("plugins/BUILD", lambda path: path.touch(), "hides what lies beside it from Bazel"),
        ("plugins/model/BUILD.bazel", lambda path: path.touch(), "hides what lies beside it from Bazel"),
        (f"{TREE}/BUILD", lambda path: path.touch(), "hides what lies beside it from Bazel"),
        (f"{TREE}/package/BUILD.bazel", lambda path: path.touch(), "hides what lies beside it from Bazel"),
        (f"{TREE}/gone", lambda path: path.symlink_to("nowhere"), "is a link"),
        (f"{TREE}/package/b.py", lambda path: path.symlink_to("a.py"), "is a link"),
        (f"{TREE}/folder", lambda path: path.symlink_to("package"), "is a link"),
        (f"{TREE}/round", lambda path: path.symlink_to("."), "is a link"),
        (f"{TREE}/pipe", os.mkfifo, "is neither a file nor a folder"),
        (f"{TREE}/socket", _socket, "is neither a file nor a folder"),
        (f"{TREE}/a:b", lambda path: path.touch(), "has a name that Bazel does not take"),
        (f"{TREE}/a\\b", lambda path: path.touch(), "has a name that Bazel does not take"),
        (f"{TREE}/a\nb", lambda path: path.touch(), "has a name that Bazel does not take"),
        (f"{TREE}/a\udcff", lambda path: path.touch(), "has a name that Bazel does not take"),
        (f"{TREE}/a:b", lambda path: path.mkdir(), "has a name that Bazel does not take"),
    ],
    ids=lambda value: ascii(value) if isinstance(value, str) else "",
)
def test_what_a_builder_would_not_see_is_refused_by_its_name(root, place, make, words):
    make(root / place)
    with pytest.raises(BuildError, match=words) as failure:
        check_tree(root, TREE)
    assert repr(place) in failure.value.what
    assert failure.value.exit_code == 7
    assert failure.value.fix
    assert str(failure.value).isascii()


def test_a_link_on_the_way_to_a_tree_is_refused(root):
    (root / "plugins").rename(root / "moved")
    (root / "plugins").symlink_to("moved")
    with pytest.raises(BuildError, match="'plugins' is a link"):
        check_tree(root, TREE)
    with pytest.raises(BuildError, match="'plugins' is a link"):
        check_tree(root, f"{TREE}/package/a.py")


def test_a_file_beside_a_tree_that_hides_it_is_refused(root):
    (root / TREE / "BUILD").touch()
    with pytest.raises(BuildError, match="hides"):
        check_tree(root, f"{TREE}/package/a.py")


def test_all_else_is_left_in_peace(root):
    for name in ("BUILD.bazel", "plugins/other:", "plugins/model/link"):  # of no tree
        (root / name).touch()
    for name in ("a b", ".hidden", "ü", "'\"$*@", "REPO.bazel", "WORKSPACE", "MODULE.bazel", "build"):
        (root / TREE / name).touch()
    (root / TREE / "BUILD").mkdir()
    (root / TREE / "empty").mkdir()
    (root / TREE / "__pycache__").mkdir()
    (root / TREE / "__pycache__/link").symlink_to("nowhere")
    check_tree(root, TREE)
    check_tree(root, "plugins/model/nothing")
    check_tree(root, "nothing/at/all")
