"""The chunk table: one text for one file, and no other text is one."""

import hashlib
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih_runtime import digests
from pih_runtime.digests import Table

CHUNK = digests.SMALLEST
DATA = bytes(range(256)) * 40  # two chunks and a half
TABLE = digests.table_of(memoryview(DATA), CHUNK)
TEXT = digests.to_text(TABLE)
HEAD = b"pih-weights-digests 1\nsize %d\nchunk %d\n"


def test_a_table_comes_back_as_it_was():
    assert digests.parse(TEXT) == TABLE
    assert (TABLE.size, TABLE.count) == (10240, 3)
    assert digests.root(TEXT) == f"sha256:{hashlib.sha256(TEXT).hexdigest()}"


@pytest.mark.skipif(not shutil.which("split"), reason="no split of coreutils")
def test_the_lines_are_what_coreutils_say(tmp_path):
    (tmp_path / "weights").write_bytes(DATA)
    command = ["split", f"--bytes={CHUNK}", "--filter=sha256sum", str(tmp_path / "weights")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in said.splitlines()] == TEXT.decode().splitlines()[3:]


@pytest.mark.parametrize(
    ("span", "chunks"),
    [
        ((0, 1), [0]),
        ((0, CHUNK), [0]),
        ((0, CHUNK + 1), [0, 1]),
        ((CHUNK - 1, CHUNK + 1), [0, 1]),
        ((CHUNK, 10240), [1, 2]),
        ((5, 5), []),
    ],
)
def test_the_chunks_of_a_span(span, chunks):
    assert list(TABLE.covering(*span)) == chunks


@given(st.integers(0, len(DATA) * 8 - 1))
def test_a_flipped_bit_is_seen_in_its_chunk_alone(bit):
    data = bytearray(DATA)
    data[bit // 8] ^= 1 << bit % 8
    right = [TABLE.holds(index, memoryview(data)) for index in range(TABLE.count)]
    assert [index for index, good in enumerate(right) if not good] == [bit // 8 // CHUNK]


LINE = b"a" * 64 + b"\n"
REFUSED = {
    "empty": (b"", "does not begin"),
    "another kind": (TEXT.replace(b"digests 1", b"digests 2"), "does not begin"),
    "a leading zero": (HEAD.replace(b"%d", b"01", 1) % CHUNK + LINE, "does not begin"),
    "size 0": (HEAD % (0, CHUNK), "does not begin"),
    "a negative size": (HEAD % (-1, CHUNK) + LINE, "does not begin"),
    "a size beyond 63 bits": (HEAD % (1 << 63, 1 << 30) + LINE, "no file has 9223372036854775808 bytes"),
    "a size of 100 digits": (HEAD % (10**99, CHUNK) + LINE, "does not begin"),
    "a count beyond memory": (HEAD % ((1 << 63) - 1, CHUNK) + LINE, "are 2251799813685248 chunks"),
    "chunk 0": (HEAD % (1, 0) + LINE, "does not begin"),
    "chunk 1": (HEAD % (1, 1) + LINE, "not a power of two"),
    "chunks of no power of two": (HEAD % (5000, 5000) + LINE, "not a power of two"),
    "chunks too large": (HEAD % (5000, 1 << 31) + LINE, "not a power of two"),
    "a line too few": (TEXT[:-65], "3 chunks of 4096, the table has 2 lines"),
    "a line too many": (TEXT + LINE, "3 chunks of 4096, the table has 4 lines"),
    "half a line": (TEXT[:-30], "the table has 2.5"),
    "no newline at the end": (TEXT[:-1], "lines"),
    "capitals": (TEXT[:-65] + LINE.upper(), "lower-case"),
    "no digits": (TEXT[:-65] + b"g" * 64 + b"\n", "lower-case"),
    "spaces in a line": (TEXT[:-65] + b"a a" + b"a" * 61 + b"\n", "lower-case"),
    "carriage returns": (TEXT.replace(b"\n", b"\r\n"), "does not begin"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_refused(name):
    text, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        digests.parse(text)


@given(st.one_of(st.binary(), st.binary().map(lambda end: HEAD % (1, CHUNK) + end)))
def test_any_bytes_are_a_table_or_refused(text):
    accepted(text)


@given(st.data())
def test_a_damaged_table_is_another_table_or_none(data):
    text = bytearray(TEXT)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        what = data.draw(st.sampled_from([b"", b"0", b"a", b"\n", b" ", b"9" * 20, b"\xff"]))
        text[place : place + data.draw(st.integers(0, 70))] = what
    if bytes(text) != TEXT:
        accepted(bytes(text))
        assert digests.root(bytes(text)) != digests.root(TEXT)


def accepted(text):
    """What parses has one text, this one, and a digest for each of its chunks."""
    try:
        found = digests.parse(text)
    except ValueError:
        return
    assert isinstance(found, Table)
    assert digests.to_text(found) == text
    assert found.count == -(-found.size // found.chunk)
