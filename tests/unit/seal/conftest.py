"""A small bundle, sealed by one key; made once, and copied for every test."""

import shutil

import pytest

from pih.seal import attach
from pih.trust import keys
from tests.support import bundles


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with the layout, the sealed layout, and the keys a.pem, b.pem and c.pem with their public halves."""
    folder = tmp_path_factory.mktemp("made")
    layout = bundles.write(folder / "work")
    for name in "abc":
        keys.generate(folder / f"{name}.pem")
    attach.seal(layout, folder / "sealed", [keys.load_private(folder / "a.pem")])
    layout.rename(folder / "layout")
    return folder


@pytest.fixture
def sealed(made, tmp_path):
    """A sealed layout of the test's own."""
    return shutil.copytree(made / "sealed", tmp_path / "sealed")


@pytest.fixture
def layout(made, tmp_path):
    """A layout of the test's own that nobody sealed."""
    return shutil.copytree(made / "layout", tmp_path / "layout")
