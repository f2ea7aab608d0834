"""Pinned artifacts for tests: from the store, PIH_MIRROR or their registry, as the product gets them."""

import functools
import os
from pathlib import Path

from pih import pins
from pih.build import fetch, store
from pih.lock import Artifact

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def pinned(kind: str, name: str) -> Artifact:
    """The pin of this release."""
    found = pins.load(ROOT).find(kind, name)
    assert found is not None, f"no {kind} {name} is pinned"
    return found


@functools.cache
def artifact(kind: str, name: str) -> Path:
    """The file, brought here if it is not."""
    own = store.open_store(store.default_root(os.environ))
    bring = fetch.one(own, lock_folder=ROOT, environment=os.environ, offline=False, listener=lambda _event: None)
    return bring(pinned(kind, name))
