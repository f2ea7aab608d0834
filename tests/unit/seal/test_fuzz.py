"""Whatever a lock says, where its digests are right: a refusal with its exit code, or a bundle that holds together."""

import json
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pih import lock as locks
from pih.seal import attach
from pih_runtime.canonical import sealed
from pih_runtime.errors import PihError
from tests.support import bundles

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.text(max_size=20),
    st.sampled_from(["", "/", "..", "a/../..", "\0", "é", "pkg:", "x" * 5000, "@", "%", "weights", "pih"]),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
WHOLE = json.loads(bundles.lock_text())


def places(value, path=()):
    """Every place in the lock's data."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from places(item, (*path, key))


PLACES = [path for path in places(WHOLE) if path[0] not in ("digests", "bindings")]


def edited(path, value):
    """The lock's text with one value changed."""
    data = json.loads(bundles.lock_text())
    here = data
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    return json.dumps(sealed(data), indent=2) + "\n"


@settings(max_examples=150)
@given(st.sampled_from(PLACES), VALUES)
def test_a_lock_of_any_content(path, value):
    try:
        lock = locks.from_json(edited(path, value), "lock.json")
    except PihError:
        return
    folder = Path(tempfile.mkdtemp())
    try:
        attach.seal(bundles.write(folder / "x", lock=lock), folder / "sealed", [])
    except PihError:
        return
    finally:
        shutil.rmtree(folder)
