"""The seed of the lock's outer builders, in the store: made from its package, checked against the lock."""

from __future__ import annotations

from pathlib import Path

from pih.build.store import Store
from pih.lock import Lock


def fill(lock: Lock, store: Store) -> Path:
    """The seed in the store, whose package is there already; raises FetchError where it is not what was locked."""
    seed = lock.build.seed
    if not store.has(seed.sha256, seed.size):
        from pih_steps.seed import archive

        package = next(artifact for artifact in lock.artifacts if artifact.name == seed.deb)
        store.check(package.sha256, package.size)
        with store.workspace() as work:
            made = work / "seed.tar"
            made.write_bytes(archive(store.path(package.sha256), seed.member))
            store.adopt(made, seed.sha256, seed.size)
    return store.path(seed.sha256)
