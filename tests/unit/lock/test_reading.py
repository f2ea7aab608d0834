"""JSON from outside."""

import re
from pathlib import Path

import pytest

from pih import lock
from pih.reading import json_of
from pih_runtime.errors import LockError
from tests.support.shipped import TEXT

PROGRAM = Path(__file__).resolve().parents[3] / "resolver/pih"
# What they read was written a moment ago, by a tool of this host or by this program for itself.
OWN = {"build/nix.py", "build/nix_log.py", "bundle/unpacked.py", "reading.py"}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 200_000, b'{"a":' * 200_000, b"1" * 5000])
def test_whatever_it_is_there_is_one_error(data):
    with pytest.raises(ValueError, match=r"."):
        json_of(data)


@pytest.mark.parametrize("data", [b'{"a": 1, "b": 2, "a": 1}', b'[{"c": {"a": {}, "a": []}}]'])
def test_a_key_that_stands_twice_is_refused(data):
    """Readers of other programs may take the other of the two."""
    with pytest.raises(ValueError, match="'a' stands twice in one table"):
        json_of(data)


def test_of_a_lock_too():
    text = TEXT.replace(b'  "schema": 1,\n', b'  "schema": 1,\n  "schema": 1,\n', 1)
    with pytest.raises(LockError, match="'schema' stands twice"):
        lock.from_json(text, "x.lock.json")


def test_no_other_reader_takes_what_comes_from_outside():
    loose = [path for path in PROGRAM.rglob("*.py") if re.search(r"\bjson\.loads?\(", path.read_text())]
    names = {path.relative_to(PROGRAM).as_posix() for path in loose}
    assert {name for name in names if not name.startswith("conformance/")} == OWN
