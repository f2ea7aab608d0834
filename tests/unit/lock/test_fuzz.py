"""Readers of profiles, manifests, locks and catalogs on damaged text: a reading, or an error in words, at once."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih import catalog, lock, profile
from pih_runtime.errors import PihError

ROOT = Path(__file__).parents[3]
PROFILE = (ROOT / "profiles" / "smollm2-cpu.toml").read_bytes()
MANIFEST = (ROOT / "plugins" / "kernels" / "cpu" / "plugin.toml").read_bytes()
LOCK = (ROOT / "profiles" / "smollm2-cpu.lock.json").read_bytes()
READERS = {
    "profile": (lambda raw: profile.parse(raw, Path("x.toml")), PROFILE),
    "manifest": (lambda raw: catalog.parse(raw, "plugin.toml"), MANIFEST),
    "lock": (lambda raw: lock.from_json(raw, "x.lock.json"), LOCK),
}
PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(
        [b"[[", b"]]", b'"""', b"\\u", b"= {", b"a.b.c", b"\n[report]\n", b"null", b"1e400", b"nan", b"\xff"]
    ),
)


@pytest.mark.parametrize("name", READERS)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damage_is_read_or_refused_in_words(name, data):
    read, whole = READERS[name]
    text = whole
    for _ in range(data.draw(st.integers(1, 4))):
        at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
        text = text[:at] + data.draw(PIECES) + text[at + cut :]
    refused_or_read(read, text)


def refused_or_read(read, text):
    began, words = time.process_time(), ""
    try:
        read(text)
    except PihError as problem:
        words = str(problem)
    assert len(words) < 3000
    assert time.process_time() - began < 10
