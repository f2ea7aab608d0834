"""A lock that nothing can be built from stops Bazel before its first action."""

import pytest

from tests.builders import lies
from tests.builders.bazel.conftest import IMAGE


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
@pytest.mark.parametrize("lie", lies.LIES)
def test_a_lie_stops_bazel_before_anything_is_built(version, lie, request, tree):
    bazel = request.getfixturevalue(f"bazel{version}")
    change, words = lies.LIES[lie]
    with lies.told(tree, change):
        done, actions = bazel.build(IMAGE, check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert "to fix: write the lock again: pih lock" in done.stderr
    assert actions == []
