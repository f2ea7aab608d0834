"""A lock that nothing can be built from stops the embedded builder though an earlier build made every step."""

import json

import pytest

from tests.builders import lies
from tests.support.checkout import copied, pih_of
from tests.support.program import PROFILE


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    made = copied(tmp_path_factory.mktemp("lies") / "pih")
    pih_of(made, "fetch", "--profile", PROFILE)
    pih_of(made, "build", "--offline", "--profile", PROFILE)
    return made


@pytest.mark.parametrize("lie", lies.LIES)
def test_a_lie_stops_pih_before_anything_is_built(lie, tree):
    change, words = lies.LIES[lie]
    with lies.told(tree, change):
        done = pih_of(tree, "build", "--offline", "--profile", PROFILE, check=False)
    assert done.returncode == 5, done.stderr
    assert words in done.stderr
    assert "pih lock" in done.stderr
    assert json.loads(pih_of(tree, "build", "--offline", "--profile", PROFILE, "--json").stdout)["steps_run"] == []
