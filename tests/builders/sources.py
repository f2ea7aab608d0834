"""What is planted in a source tree: every builder takes it alike, or refuses it by its name."""

import shutil
from contextlib import contextmanager

# A tree that the steps `app` and `image` read.
TREE = "plugins/surface/openai/pih_surface_openai"

# What is refused: how it is made, and the name that is told. Of a tree that Bazel sees nothing of it cannot tell more.
REFUSED = {
    "a BUILD file below": (lambda tree: _made(tree, f"{TREE}/own/BUILD", f"{TREE}/own/lost.py"), f"{TREE}/own/BUILD"),
    "a BUILD file in the tree": (lambda tree: _made(tree, f"{TREE}/BUILD.bazel"), f"{TREE}/BUILD.bazel"),
    "a BUILD file above": (lambda tree: _made(tree, "plugins/surface/BUILD"), "plugins/surface/BUILD"),
    "a dangling link": (lambda tree: (tree / TREE / "gone").symlink_to("nowhere"), f"{TREE}/gone"),
    "a link to a file": (lambda tree: (tree / TREE / "again.py").symlink_to("__init__.py"), f"{TREE}/again.py"),
}


def odd(tree):
    """Make all that is unusual and yet taken."""
    names = ("a b.txt", ".hidden", "ü.txt", "'\"$*@.txt", "REPO.bazel", "WORKSPACE", "MODULE.bazel", "old.pyc/a.txt")
    _made(tree, *(f"{TREE}/odd/{name}" for name in names), f"{TREE}/odd/BUILD/a.txt")
    (tree / TREE / "odd/empty").mkdir()
    (tree / TREE / "odd/a b.txt").chmod(0o755)
    (tree / TREE / "odd/.hidden").chmod(0o400)


@contextmanager
def planted(tree, make):
    """Something is made in a copy of the source tree, and gone after the block."""
    before = {*(tree / "plugins").rglob("*")}
    make(tree)
    try:
        yield
    finally:
        for path in sorted({*(tree / "plugins").rglob("*")} - before):
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)


def _made(tree, *names):
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("# planted\n")
