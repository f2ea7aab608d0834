"""Where two outputs differ first."""

import gzip
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih.build.compare import Difference, first_difference
from pih_steps import tar
from tests.support import bundles


@pytest.fixture
def pair(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "a").write_bytes(b"same")
        (tmp_path / name / "deep" / "b").write_bytes(b"0123456789")
    return tmp_path / "one", tmp_path / "other"


def test_alike(pair):
    assert first_difference(*pair) is None
    assert first_difference(pair[0] / "a", pair[1] / "a") is None


def test_a_changed_byte_is_named_with_its_offset(pair):
    (pair[1] / "deep" / "b").write_bytes(b"01234x6789")
    assert first_difference(*pair) == Difference("deep/b", 5, "10 bytes against 10")


def test_a_shorter_file(pair):
    (pair[1] / "deep" / "b").write_bytes(b"0123")
    assert first_difference(*pair) == Difference("deep/b", 4, "10 bytes against 4")


def test_a_missing_file(pair):
    (pair[1] / "deep" / "b").unlink()
    assert first_difference(*pair) == Difference("deep/b", -1, "file against nothing")


def test_modes_do_not_count(pair):
    (pair[1] / "a").chmod(0o755)
    assert first_difference(*pair) is None


def test_links(pair):
    for root, target in zip(pair, ("x", "y"), strict=True):
        (root / "link").symlink_to(target)
    assert first_difference(*pair) == Difference("link", -1, "link to x against y")


def test_a_file_against_a_folder(pair):
    (pair[1] / "a").unlink()
    (pair[1] / "a").mkdir()
    assert first_difference(*pair) == Difference("a", -1, "file against folder")


def test_of_two_images_the_first_layer_that_differs_is_compared(tmp_path):
    def changed(step, files):
        if step != "app":
            return files
        other = tar.Entry("usr/bin/pih-worker", b"workEr", mode=0o755)
        return [replace(file, entry=other) if file.entry.path == other.path else file for file in files]

    one, other = bundles.write(tmp_path / "one"), bundles.write(tmp_path / "other", change=changed)
    found = first_difference(one, other)
    layer = gzip.decompress((one / found.path).read_bytes())
    place = layer.index(b"worker", layer.index(b"usr/bin/pih-worker") + 512)
    assert found.path.startswith("blobs/sha256/")
    assert found.offset == place + 4
    assert found.what.endswith(", in usr/bin/pih-worker")


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_offset_is_the_length_of_the_common_start(tmp_path_factory, one, other):
    folder = tmp_path_factory.mktemp("pair")
    (folder / "one").write_bytes(one)
    (folder / "other").write_bytes(other)
    found = first_difference(folder / "one", folder / "other")
    common = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert found is None if one == other else found.offset == common
