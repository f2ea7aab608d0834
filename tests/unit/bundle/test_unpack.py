"""A bundle is unpacked whole, below its folder, or not at all."""

import errno
import os

import pytest

from pih.build import extract, made
from pih.build.progress import Dropped, silent
from pih.build.store import open_store
from pih.bundle import layout, own
from pih.bundle.unpack import unpack
from pih_runtime.errors import SealError, WorkerError
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


@pytest.mark.parametrize(
    "entries",
    [
        [("d/" * 1900 + "x", b"")],
        [("/".join(["d" * 100] * 50), b"")],
        [("x" * 256, b"")],
        [("link", ("->", "x" * 5000))],
        [("proc", b"a file")],
        [("tmp", ("->", "elsewhere"))],
        [("pih", b"a file")],
        [("else", None), ("pih", ("->", "else"))],
    ],
)
def test_names_and_places_that_cannot_be(tmp_path, store, entries):
    with pytest.raises(SealError):
        unpacked(tmp_path, store, tar(entries))
    assert list((store.root / "roots").iterdir()) == []
    assert list((store.root / "tmp").iterdir()) == []


def test_a_damaged_root_is_unpacked_again(tmp_path, store):
    root = unpacked(tmp_path, store, tar([("a", b"1")]))
    (root / "a").write_bytes(b"2")
    events = []
    assert unpack(layout.read(tmp_path / "layout"), store, events.append) == root
    assert (root / "a").read_bytes() == b"1"
    assert events == [Dropped("the unpacked image")]


def test_a_damaged_image_of_the_store_is_dropped_there(tmp_path, store):
    key = "0" * 64
    path = layouts.write(store.place("steps", key) / "output", [tar([("a", b"1" * 1000)])], types=[TAR])
    image = layout.read(path)
    blob = layout.blob_path(path, image.layers[0].digest)
    blob.write_bytes(blob.read_bytes().replace(b"1", b"2"))
    events = []
    with (
        pytest.raises(SealError, match="run this again"),
        own.dropped_if_damaged(image.path, store, events.append),
    ):
        unpack(image, store)
    assert events == [Dropped("the image")]
    assert list((store.root / "steps").iterdir()) == []


def test_an_image_of_the_store_that_is_as_it_was_made_stays_there(tmp_path, store):
    """What is wrong with it is its builder's fault: to build it again would not help."""
    with store.workspace() as work:
        layouts.write(work / "entry/output", [tar([("../a", b"1")])], types=[TAR])
        entry = made.publish(store, work / "entry", "steps", "0" * 64, name="x", listener=silent, facts={})
    with pytest.raises(SealError, match="leaves the root"), own.dropped_if_damaged(entry.path, store, silent):
        unpack(layout.read(entry.path), store)
    assert entry.path.is_dir()


def test_a_damaged_image_elsewhere_stays_where_it_is(tmp_path, store):
    path = layouts.write(tmp_path / "mine/output", [tar([("../a", b"1")])])
    with pytest.raises(SealError), own.dropped_if_damaged(path, store, silent):
        unpack(layout.read(path), store)
    assert path.is_dir()


def test_a_full_disk_is_no_fault_of_the_image(tmp_path, store, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(extract, "file", full)
    with pytest.raises(WorkerError, match="No space left"):
        unpacked(tmp_path, store, tar([("a", b"1")]))
    assert list((store.root / "tmp").iterdir()) == []
