"""A bundle is unpacked whole, below its folder, or not at all."""

import pytest

from pih.build.store import open_store
from pih.bundle import layout
from pih.bundle.unpack import unpack
from pih_runtime.errors import SealError
from tests.unit.bundle import layouts
from tests.unit.bundle.layouts import GZIP, TAR, tar


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def unpacked(tmp_path, store, *archives, types=None):
    path = layouts.write(tmp_path / "layout", list(archives), types=types)
    return unpack(layout.read(path), store)


def test_layers_one_over_the_other(tmp_path, store):
    base = tar([("bin", None), ("bin/run", b"1"), ("lib/old", b"old"), ("link", ("->", "lib/old"))])
    top = tar([("lib/old", b"new"), ("pih/weights/w", b"w" * 100_000)])
    root = unpacked(tmp_path, store, base, top, types=[GZIP, TAR])
    assert (root / "link").read_text() == "new"
    assert (root / "bin/run").stat().st_mode & 0o777 == 0o755
    assert (root / "lib/old").stat().st_mode & 0o777 == 0o644
    assert (root / "pih/weights/w").stat().st_size == 100_000
    for folder in ("proc", "dev", "tmp"):
        assert (root / folder).is_dir()


def test_a_second_time_takes_what_is_there(tmp_path, store):
    root = unpacked(tmp_path, store, tar([("a", b"1")]))
    image = layout.read(tmp_path / "layout")
    for layer in image.layers:
        layout.blob_path(image.path, layer.digest).unlink()
    assert unpack(image, store) == root


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("../evil", b"x")], "leaves the root"),
        ([("/etc/evil", b"x")], "leaves the root"),
        ([("link", ("->", "../..")), ("link/evil", b"x")], "leaves the root"),
        ([("dir", None), ("link", ("->", "dir")), ("link/evil", b"x")], "not a folder"),
        ([("a", b"x"), ("b", ("=", "a"))], "neither file"),
        ([("dev/null", ("dev", ""))], "neither file"),
        ([("dir/.wh.file", b"")], "deletes"),
        ([("dir/x", b""), ("dir", b"file")], "place of a folder"),
    ],
)
def test_hostile_entries(tmp_path, store, entries, message):
    with pytest.raises(SealError, match=message):
        unpacked(tmp_path, store, tar(entries))
    assert list((store.root / "roots").iterdir()) == []
    assert list((store.root / "tmp").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layout", "store"]


def test_wrong_bytes_leave_nothing(tmp_path, store):
    path = layouts.write(tmp_path / "layout", [tar([("a", b"1")]), tar([("b", b"2" * 10_000)])], types=[GZIP, TAR])
    image = layout.read(path)
    blob = layout.blob_path(path, image.layers[1].digest)
    data = bytearray(blob.read_bytes())
    data[600] ^= 1
    blob.write_bytes(data)
    with pytest.raises(SealError, match="other bytes"):
        unpack(image, store)
    assert list((store.root / "roots").iterdir()) == []


@pytest.mark.parametrize("archive", [b"", b"\xff" * 2048, tar([("a", b"1" * 5000)])[:3000]])
def test_what_is_no_archive(tmp_path, store, archive):
    with pytest.raises(SealError):
        unpacked(tmp_path, store, archive)
