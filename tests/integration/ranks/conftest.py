"""Two images that differ by their number of cards, built for real."""

import json
from pathlib import Path

import pytest

from tests.support.program import ROOT, pih


@pytest.fixture(scope="session")
def image():
    """The layout of a shipped profile's image."""
    return lambda name: Path(
        json.loads(pih("build", "--profile", ROOT / f"profiles/{name}.toml", "--json").stdout)["layout"]
    )
