"""The seed in the store: made from its package, and what the lock says."""

from types import SimpleNamespace

import pytest

from pih.build import seed
from pih.build.store import measure, open_store
from pih.lock import Artifact, Seed
from pih_runtime.errors import FetchError
from pih_steps.seed import archive
from tests.unit.steps import deb_file


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "tools.deb"
    path.write_bytes(deb_file.package(("./bin/tool", b"static", {"mode": 0o755})))
    return path


@pytest.fixture
def store(tmp_path, package):
    store = open_store(tmp_path / "store")
    store.add_file(package)
    return store


@pytest.fixture
def a_lock(tmp_path, package):
    """As much of a lock as a seed needs."""
    made = tmp_path / "made.tar"
    made.write_bytes(archive(package, "bin/tool"))
    artifact = Artifact("tools", "1", "deb", *measure(package), (), "MIT", ())
    return SimpleNamespace(artifacts=(artifact,), build=SimpleNamespace(seed=Seed("tools", "bin/tool", *measure(made))))


def test_it_is_made_once_from_its_package(a_lock, store, package):
    path = seed.fill(a_lock, store)
    assert path.read_bytes() == archive(package, "bin/tool")
    store.path(a_lock.artifacts[0].sha256).unlink()
    assert seed.fill(a_lock, store) == path


def test_a_seed_that_is_not_what_was_locked_does_not_enter(a_lock, store):
    wrong = Seed("tools", "bin/tool", "0" * 64, a_lock.build.seed.size)
    with pytest.raises(FetchError, match=f"where the lock says {'0' * 64}"):
        seed.fill(SimpleNamespace(artifacts=a_lock.artifacts, build=SimpleNamespace(seed=wrong)), store)
    assert not store.has("0" * 64)


def test_a_damaged_package_is_noticed(a_lock, store):
    path = store.path(a_lock.artifacts[0].sha256)
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    with pytest.raises(FetchError, match="damaged"):
        seed.fill(a_lock, store)
