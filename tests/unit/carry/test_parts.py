"""A file in parts: bounded, digested, and all there or not at all."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih.carry import parts


@settings(max_examples=60)
@given(chunks=st.lists(st.binary(max_size=40), max_size=12), limit=st.integers(9, 50))
def test_the_parts_make_the_whole(tmp_path_factory, chunks, limit):
    folder = tmp_path_factory.mktemp("parts")
    with parts.writing(folder / "x.pih", 8, limit) as stream:
        for chunk in chunks:
            stream.write(chunk)
        found = stream.finish()
        names = stream.publish(b"8 bytes.")
    assert sorted(names) == sorted(folder.iterdir())
    data = [path.read_bytes() for path in names]
    assert data[0][:8] == b"8 bytes."
    pieces = [data[0][8:], *data[1:]]
    assert b"".join(pieces) == b"".join(chunks)
    assert [(len(piece), hashlib.sha256(piece).hexdigest()) for piece in pieces] == [
        (part.size, part.sha256) for part in found
    ]
    assert all(len(whole) <= limit for whole in data)


def test_what_is_not_published_is_not_there(tmp_path):
    (tmp_path / "x.pih").write_bytes(b"before")

    def interrupted():
        with parts.writing(tmp_path / "x.pih", 8, 20) as stream:
            stream.write(b"x" * 100)
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["x.pih"]
    assert (tmp_path / "x.pih").read_bytes() == b"before"


def test_a_shorter_one_leaves_no_part_of_a_longer_one(tmp_path):
    for size in (100, 10):
        with parts.writing(tmp_path / "x.pih", 8, 20) as stream:
            stream.write(b"x" * size)
            stream.finish()
            stream.publish(b"8 bytes.")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pih"]
