"""A plugin as `pih plugin new` makes it."""

import pytest

from pih.conformance import new
from tests.support.program import ROOT


@pytest.fixture
def made(tmp_path):
    new.write("backend", "made", tmp_path / "made", ROOT)
    return tmp_path / "made"
