"""Deterministic tar and gzip, compared with what the standard library reads."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps import tar

_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)


def _archive(entries, folders=()):
    out = io.BytesIO()
    tar.write(out, entries, folders)
    return out.getvalue()


def _listing(raw):
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        return archive.getmembers()


def test_owner_time_and_order_are_fixed(tmp_path):
    (tmp_path / "big").write_bytes(b"streamed" * 1000)
    entries = [tar.Entry("b/x", b"x", mode=0o755), tar.Entry("b/link", target="x"), tar.Entry("a", tmp_path / "big")]
    raw = _archive(entries, [("tmp", 0o1777)])
    members = _listing(raw)
    assert [(m.name, m.type, m.mode, m.size) for m in members] == [
        ("a", tarfile.REGTYPE, 0o644, 8000),
        ("b", tarfile.DIRTYPE, 0o755, 0),
        ("b/link", tarfile.SYMTYPE, 0o777, 0),
        ("b/x", tarfile.REGTYPE, 0o755, 1),
        ("tmp", tarfile.DIRTYPE, 0o1777, 0),
    ]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert raw == _archive(reversed(entries), [("tmp", 0o1777)])


def test_the_bytes_are_the_ones_of_this_format():
    digest = hashlib.sha256(_archive([tar.Entry("a/b", b"text"), tar.Entry("c", target="a/b")])).hexdigest()
    assert digest == "a20bd045ce5aca86b97af714154a9b286ff3b0c0dd707f08725eb46cd1af8bb8"


@settings(deadline=None)
@given(st.dictionaries(st.lists(_NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=2000), max_size=8))
def test_what_goes_in_comes_out(files):
    folders = {path.rsplit("/", count)[0] for path in files for count in range(1, path.count("/") + 1)}
    files = {path: data for path, data in files.items() if path not in folders}
    with tarfile.open(fileobj=io.BytesIO(_archive(tar.Entry(p, d) for p, d in files.items()))) as archive:
        assert {m.name: archive.extractfile(m).read() for m in archive if m.isfile()} == files


def test_a_long_path_is_split_and_a_longer_one_refused():
    path = "/".join(["folder" * 5] * 6 + ["name"])
    assert _listing(_archive([tar.Entry(path)]))[-1].name == path
    with pytest.raises(BuildError, match="too long"):
        _archive([tar.Entry("x" * 101)])
    with pytest.raises(BuildError, match="longer than the 100 bytes"):
        _archive([tar.Entry("link", target="x" * 101)])


def test_a_file_of_more_than_8_gib_has_a_size_that_readers_know(tmp_path):
    size = (8 << 30) + 3
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(size)
    taken = []

    class _EnoughError(Exception):
        pass

    class _Head:
        def write(self, data):
            taken.append(data)
            if len(taken) == 1:
                raise _EnoughError

    with pytest.raises(_EnoughError):
        tar.write(_Head(), [tar.Entry("weights", tmp_path / "sparse")])
    assert tarfile.TarInfo.frombuf(taken[0], "utf-8", "strict").size == size


def test_two_files_at_one_path_are_refused():
    with pytest.raises(BuildError, match="two files want to be a"):
        _archive([tar.Entry("a"), tar.Entry("a", b"x")])
    with pytest.raises(BuildError, match="a folder and something else"):
        _archive([tar.Entry("a"), tar.Entry("a/b")])


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"four")
    monkeypatch.setattr(type(path), "stat", lambda _: type("Stat", (), {"st_size": 5})())
    with pytest.raises(BuildError, match="shrank"):
        _archive([tar.Entry("file", path)])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3000), max_size=5))
def test_gzip_is_read_by_everyone_and_has_a_fixed_header(pieces):
    out = io.BytesIO()
    packed = tar.Gzip(out)
    for piece in pieces:
        packed.write(piece)
    packed.finish()
    assert gzip.decompress(out.getvalue()) == b"".join(pieces)
    assert zlib.decompress(out.getvalue(), wbits=31) == b"".join(pieces)
    assert out.getvalue()[:10] == bytes.fromhex("1f8b0800000000000 2ff".replace(" ", ""))


def test_hashing_counts_and_digests_what_passes():
    out = io.BytesIO()
    sink = tar.Hashing(out)
    sink.write(b"ab")
    sink.write(b"c")
    assert (out.getvalue(), sink.size) == (b"abc", 3)
    assert sink.digest == "sha256:" + hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../b", "a//b", "."])
def test_a_path_that_is_not_below_the_root_is_refused(path):
    with pytest.raises(BuildError, match="no path below"):
        tar.write(io.BytesIO(), [tar.Entry(path, b"")])
