"""Variants of a tiny deployment, locked and built once."""

import functools

import pytest

from tests.integration.diff import variants


@pytest.fixture(scope="session")
def profile_of(tmp_path_factory):
    """Name of a variant → its profile, with its lock beside it; built where a test asks for the image."""
    folder = tmp_path_factory.mktemp("variants")
    return functools.cache(lambda name: variants.write(folder, name))


@pytest.fixture(scope="session")
def layout_of(profile_of):
    return functools.cache(lambda name: variants.build(profile_of(name)))
