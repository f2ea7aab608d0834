"""Nothing that an archive says makes a file outside its folder."""

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih.build import extract
from pih.build.extract import UnsafePathError

PATHS = st.lists(st.sampled_from(["a", "b", ".", "..", "", "c\0"]), min_size=1, max_size=5).map("/".join)
ENTRIES = st.lists(st.tuples(st.sampled_from(["file", "link", "folder"]), PATHS, PATHS), max_size=8)


def write(root, path, text="x", *, executable=False):
    extract.file(root, path, io.BytesIO(text.encode()), len(text), executable=executable)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(entries=ENTRIES)
def test_whatever_the_archive_says(tmp_path_factory, entries):
    outside = tmp_path_factory.mktemp("outside")
    root = outside / "one/root"
    root.mkdir(parents=True)
    for kind, path, target in entries:
        try:
            if kind == "file":
                write(root, path)
            elif kind == "link":
                extract.link(root, path, target)
            else:
                extract.folder(root, path)
        except (UnsafePathError, ValueError):
            continue
    assert [path.name for path in outside.iterdir()] == ["one"]
    assert [path.name for path in (outside / "one").iterdir()] == ["root"]
    for path in root.rglob("*"):
        if path.is_symlink():
            assert not str(path.readlink()).startswith("/")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a/..", "", ".", "a\0b"])
def test_paths_that_leave_the_root(tmp_path, path):
    with pytest.raises(UnsafePathError):
        write(tmp_path, path)


@pytest.mark.parametrize("target", ["", "..", "../x", "a/../../x"])
def test_links_that_leave_the_root_or_lead_nowhere(tmp_path, target):
    with pytest.raises(UnsafePathError):
        extract.link(tmp_path, "link", target)


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    extract.link(tmp_path, "link", "folder")
    with pytest.raises(UnsafePathError, match="link"):
        write(tmp_path, "link/file")
    write(tmp_path, "link")
    assert (tmp_path / "link").read_text() == "x"
    assert list((tmp_path / "folder").iterdir()) == []


def test_an_absolute_link_is_meant_from_the_root(tmp_path):
    write(tmp_path, "lib/real", "1")
    extract.link(tmp_path, "lib64/deep/link", "/lib/real")
    assert (tmp_path / "lib64/deep/link").read_text() == "1"
    assert str((tmp_path / "lib64/deep/link").readlink()) == "../../lib/real"


def test_a_later_file_takes_the_place_of_an_earlier_one(tmp_path):
    write(tmp_path, "a", "first")
    write(tmp_path, "./a", "2", executable=True)
    assert (tmp_path / "a").read_text() == "2"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755
    extract.folder(tmp_path, "b")
    with pytest.raises(UnsafePathError, match="place of a folder"):
        write(tmp_path, "b")


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    with pytest.raises(UnsafePathError, match="cut short"):
        extract.file(tmp_path, "a", io.BytesIO(b"12"), 3, executable=False)


@pytest.mark.parametrize("path", ["x" * 256, "\u00e4" * 128, "/".join(["abcdefghi"] * 110), "d/" * 101 + "x", "\ud800"])
def test_names_that_no_system_takes(tmp_path, path):
    with pytest.raises(UnsafePathError):
        write(tmp_path, path)
    with pytest.raises(UnsafePathError):
        extract.link(tmp_path, "link", path)
    assert list(tmp_path.iterdir()) == []


def test_long_names_that_a_system_takes(tmp_path):
    write(tmp_path, "x" * 255)
    write(tmp_path, "d/" * 99 + "x")


def test_a_link_with_a_null_byte(tmp_path):
    with pytest.raises(UnsafePathError):
        extract.link(tmp_path, "link", "a\0b")
