"""A source tree is to Nix what it is to the embedded builder, or it is refused by both."""

import json
from pathlib import Path

import pytest

from pih.build.compare import first_difference
from tests.builders import sources
from tests.support.program import PROFILE

# Not through the flake, which leaves out what git does not track.
BUILD = ("nix-build", "--no-out-link", "--attr", "smollm2-cpu")


@pytest.mark.parametrize("what", sources.REFUSED)
def test_what_bazel_would_not_see_is_refused(world, image, what):
    make, name = sources.REFUSED[what]
    with sources.planted(world.tree, make):
        done = world.run(*BUILD, check=False)
    assert done.returncode != 0
    assert repr(name) in done.stderr
    assert "Traceback" not in done.stderr


def test_all_else_gives_the_embedded_builders_image(world, image):
    with sources.planted(world.tree, sources.odd):
        made = Path(world.run(*BUILD).stdout.strip()).resolve()
        ours = json.loads(world.pih("build", "--profile", PROFILE, "--json").stdout)
    assert made != image
    assert first_difference(made, Path(ours["layout"])) is None
