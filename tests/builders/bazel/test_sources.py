"""A source tree is to Bazel what it is to the other builders, or it is refused by all of them."""

import json
from pathlib import Path

import pytest

from tests.builders import sources
from tests.builders.bazel import world
from tests.builders.bazel.conftest import IMAGE
from tests.support.checkout import pih_of
from tests.support.program import PROFILE

VERSIONS = pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])


@VERSIONS
@pytest.mark.parametrize("what", sources.REFUSED)
def test_what_bazel_would_not_see_is_refused(version, what, request, tree):
    """After a build of the tree without it; what no glob tells of is noticed with the next change of the tree."""
    bazel = request.getfixturevalue(f"bazel{version}")
    make, name = sources.REFUSED[what]
    bazel.build(IMAGE)
    undo = world.edited(tree, f"{sources.TREE}/__init__.py", lambda text: f"{text}# {what}\n")
    if version > 4 and "BUILD" in what:
        undo()
    with sources.planted(tree, make):
        done, actions = bazel.build(IMAGE, check=False)
        ours = pih_of(tree, "build", "--offline", "--profile", PROFILE, check=False)
    undo()
    assert done.returncode != 0
    told = repr(name) if "BUILD" not in what else f"the BUILD file in {Path(name).parent} hides"
    if version == 4 and "BUILD" in what:
        told = repr(name) if "below" in what else "a BUILD file there, or in a folder above, hides it"
    assert told in done.stderr
    assert "smollm2-cpu" not in world.steps(actions)
    assert ours.returncode == 7
    assert repr(name) in ours.stderr


@VERSIONS
def test_all_else_gives_the_embedded_builders_image(version, request, tree):
    bazel = request.getfixturevalue(f"bazel{version}")
    with sources.planted(tree, sources.odd):
        bazel.build(IMAGE)
        made = world.files(bazel.output("profiles/smollm2-cpu"))
        ours = json.loads(pih_of(tree, "build", "--offline", "--profile", PROFILE, "--json").stdout)
    assert made == world.files(Path(ours["layout"]))
