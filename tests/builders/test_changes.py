"""After a change the embedded builder runs the steps that read what changed, and no others.

The image is always among them: it names the source trees that it was made from by their digests.
"""

import json

import pytest

from tests.support.checkout import copied, edited, pih_of
from tests.support.program import PROFILE


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the source tree whose image is built."""
    made = copied(tmp_path_factory.mktemp("changes") / "pih")
    ran(made)
    return made


def ran(tree):
    """The steps that a build runs now."""
    return json.loads(pih_of(tree, "build", "--profile", PROFILE, "--json").stdout)["steps_run"]


def test_nothing_runs_again(tree):
    assert ran(tree) == []


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("kernels/cpu/pack.h", "// the same code {}\n", ["kernels", "image"]),
        ("kernels/cpu/pack.h", "PIH_EXPORT int pih_edited_{}(void) {{ return 1; }}\n", ["kernels", "image"]),
        ("plugins/model/llama/pih_model_llama/__init__.py", "# the same plan {}\n", ["plan", "image"]),
        ("docs/concepts.md", "{}\n", []),
    ],
    ids=["comment in a kernel", "kernel", "model", "page"],
)
def test_a_change_runs_the_steps_that_see_it(tree, tmp_path, file, text, expected):
    path = tree / file
    before = path.read_text()
    path.write_text(before + text.format(f"{hash(tmp_path) & 0xFFFFFFFFFFFF:x}"))  # what no earlier run has built
    try:
        assert ran(tree) == expected
    finally:
        path.write_text(before)


def test_another_port_runs_the_steps_that_hold_the_lock(tree, tmp_path):
    lock = (tree / PROFILE).with_suffix(".lock.json")
    held = lock.read_text()
    before = edited(tree / PROFILE, "port = 8000", f"port = {9000 + hash(tmp_path) % 50000}")
    try:
        pih_of(tree, "lock", "--profile", PROFILE)
        assert ran(tree) == ["app", "image"]
    finally:
        (tree / PROFILE).write_text(before)
        lock.write_text(held)
