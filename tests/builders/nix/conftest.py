"""One Nix store for all tests: what one has built the next does not build again."""

import json
import shutil

import pytest

from tests.builders.nix import world as worlds
from tests.support import poison
from tests.support.program import PROFILE


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """A Nix that has built nothing and has no artifact yet, in surroundings that no build may look at."""
    if not shutil.which("nix"):
        pytest.skip("Nix is not installed (Debian: nix-bin)")
    folder = tmp_path_factory.mktemp("nix")
    yield worlds.create(folder, **poison.environment(folder / "poison"))
    worlds.remove(folder)


@pytest.fixture(scope="session")
def missing(empty):
    """What a build says before the artifacts were brought."""
    return empty.build(".#smollm2-cpu", check=False)


@pytest.fixture(scope="session")
def world(empty, missing):
    """A Nix with the artifacts of SmolLM2."""
    empty.pih("fetch", "--profile", PROFILE, "--builder", "nix")
    return empty


@pytest.fixture(scope="session")
def embedded(world):
    """Digest and layout of the embedded builder's image, from the same tree."""
    return json.loads(world.pih("build", "--profile", PROFILE, "--json").stdout)


@pytest.fixture(scope="session")
def image(world):
    """The image in the Nix store."""
    world.build(".#smollm2-cpu")
    return world.path(".#smollm2-cpu").resolve()


@pytest.fixture
def elsewhere(world, tmp_path):
    """The store of a second machine."""
    folder = tmp_path / "second"
    yield world.remote(folder)
    worlds.remove(folder)
