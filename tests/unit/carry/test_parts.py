"""A file in parts: bounded, digested, and all there or not at all."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih.carry import parts
from pih_runtime.errors import UsageError
from tests.support.disk import small_disk


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


def write(path, size, byte=b"x"):
    with parts.writing(path, 8, 200 if size == 150 else 20) as stream:
        stream.write(byte * size)
        stream.finish()
        return stream.publish(b"8 bytes.")


def test_what_is_not_published_is_not_there(tmp_path):
    def interrupted():
        with parts.writing(tmp_path / "x.pih", 8, 20) as stream:
            stream.write(b"x" * 100)
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x.pih", "x.pih.001"])
def test_what_is_there_stays(tmp_path, name):
    (tmp_path / name).write_bytes(b"before")
    with pytest.raises(UsageError, match="there already"):
        write(tmp_path / "x.pih", 10)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"before"


def test_a_folder_that_is_missing_is_not_made(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        write(tmp_path / "typo" / "x.pih", 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [10, 100])
@pytest.mark.parametrize("links", [True, False])
def test_two_at_once_to_one_name(tmp_path, monkeypatch, size, links):
    """The first one to be whole stays as it is, and the other says that it was too late."""
    if not links:
        monkeypatch.setattr(parts.os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links here")))
    with parts.writing(tmp_path / "x.pih", 8, 20) as late:
        late.write(b"l" * size)
        names = write(tmp_path / "x.pih", 100)
        late.write(b"l")
        late.finish()
        with pytest.raises(UsageError, match="there already"):
            late.publish(b"8 later.")
    assert sorted(tmp_path.iterdir()) == names
    assert b"".join(path.read_bytes() for path in names) == b"8 bytes." + b"x" * 100


def test_without_links_what_came_meanwhile_stays(tmp_path, monkeypatch):
    """A rename would take its place."""

    def no_links(_, name):
        name.write_text("mine")  # another, between the link that failed and what comes after
        monkeypatch.setattr(parts.os.path, "lexists", lambda _: False)
        raise PermissionError(1, "no links here")

    with parts.writing(tmp_path / "x.pih", 8, 20) as stream:
        stream.write(b"x")
        stream.finish()
        monkeypatch.setattr(parts.os, "link", no_links)
        with pytest.raises(UsageError, match="there already"):
            stream.publish(b"8 bytes.")
    assert (tmp_path / "x.pih").read_text() == "mine"


def test_a_disk_without_room_names_the_file_that_was_asked_for(tmp_path):
    with small_disk(), pytest.raises(OSError, match="File too large") as full:
        write(tmp_path / "x.pih", 150)
    assert full.value.filename == str(tmp_path / "x.pih")
    assert not list(tmp_path.iterdir())
