"""JSON from outside."""

import re
from pathlib import Path

import pytest

from pih.reading import json_of

PROGRAM = Path(__file__).resolve().parents[3] / "resolver/pih"
# What they read was written a moment ago, by a tool of this host or by this program for itself.
OWN = {"build/nix.py", "build/nix_log.py", "bundle/unpacked.py", "reading.py"}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 200_000, b'{"a":' * 200_000, b"1" * 5000])
def test_whatever_it_is_there_is_one_error(data):
    with pytest.raises(ValueError, match=r"."):
        json_of(data)


def test_no_other_reader_takes_what_comes_from_outside():
    loose = [path for path in PROGRAM.rglob("*.py") if re.search(r"\bjson\.loads?\(", path.read_text())]
    names = {path.relative_to(PROGRAM).as_posix() for path in loose}
    assert {name for name in names if not name.startswith("conformance/")} == OWN
