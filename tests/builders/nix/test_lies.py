"""A lock that nothing can be built from stops Nix before its first step."""

import pytest

from tests.builders import lies


@pytest.mark.parametrize("lie", lies.LIES)
def test_a_lie_stops_nix_before_anything_is_built(lie, world, image):
    change, words = lies.LIES[lie]
    with lies.told(world.tree, change):
        done, built = world.build(".#smollm2-cpu", check=False)
        ours = world.pih("build", "--builder", "nix", "--offline", "--profile", lies.PROFILE, check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert "pih lock" in done.stderr
    assert built == ()
    assert ours.returncode == 5, ours.stderr
    assert words in ours.stderr
