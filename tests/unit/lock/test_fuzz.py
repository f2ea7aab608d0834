"""Readers of profiles, manifests and locks on damaged and hostile text: a reading, or an error in words, at once."""

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
    began, words = time.perf_counter(), ""
    try:
        read(text)
    except PihError as problem:
        words = str(problem)
    assert len(words) < 3000
    assert time.perf_counter() - began < 10


HOSTILE = {
    "many keys": b"".join(b"k%d=1\n" % number for number in range(50_000)),
    "many tables": b"".join(b"[t%d]\n" % number for number in range(50_000)),
    "many tables of an array": b"[[a]]\n" * 50_000,
    "brackets": b"a=" + b"[" * 500_000,
    "inline tables": b"a=" + b"{b=" * 200_000,
    "a key of many parts": b"a" + b".a" * 400_000 + b"=1",
    "a table of many parts": b"[" + b"a." * 400_000 + b"a]",
    "a long number": b"a=" + b"9" * 900_000,
    "a long string": b'[model]\nplugin="' + b"a-" * 400_000 + b'"',
    "half a character": b'a="\\ud800"',
    "nothing": b"",
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("name", ["profile", "manifest"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_toml(name, case):
    refused_or_read(READERS[name][0], HOSTILE[case])


HOSTILE_JSON = {
    "brackets": b"[" * 1_000_000,
    "many keys": b'{"schema":1,' + b",".join(b'"k%d":1' % number for number in range(200_000)) + b"}",
    "a long number": b'{"schema":' + b"9" * 100_000 + b"}",
    "no number": b'{"schema":NaN}',
    "half a character": LOCK.replace(b'"delivery": "embed"', b'"delivery": "\\ud800"'),
    "nothing": b"",
    "too much": b" " * ((1 << 26) + 1),
}


@pytest.mark.parametrize("case", HOSTILE_JSON)
def test_hostile_json(case):
    refused_or_read(READERS["lock"][0], HOSTILE_JSON[case])
