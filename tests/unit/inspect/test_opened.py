"""Bundles in every form, and what is refused of them."""

import io
import random
import tarfile

import pytest

from pih.bundle import archive
from pih.inspect.opened import opened
from pih_runtime.errors import LockError, SealError
from tests.support.shipped import LOCK, TEXT, listing
from tests.unit.bundle import layouts


@pytest.fixture
def layout(tmp_path):
    app = layouts.tar([("pih", None), ("pih/lock.json", TEXT)])
    deployment = layouts.tar([("pih", None), ("pih/bundle.json", listing())])

    def named(part, value):
        return value | {"history": [{"comment": "app"}, {"comment": "deployment"}]} if part == "config" else value

    return layouts.write(tmp_path / "layout", [app, deployment], change=named)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root" / "pih"
    folder.mkdir(parents=True)
    (folder / "lock.json").write_bytes(TEXT)
    (folder / "bundle.json").write_bytes(listing())
    return folder.parent


def packed(layout, path, mode):
    with tarfile.open(path, mode) as tar:
        tar.add(layout, ".")
    return path


def test_a_layout_has_its_lock_and_files(layout):
    held = opened(layout)
    assert held.lock == LOCK
    assert [file.path for file in held.contents.files] == ["/pih/lock.json"]
    assert [layer.name for layer in held.contents.layers] == ["app", "deployment"]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_is_read_like_its_layout(layout, tmp_path, mode):
    assert opened(packed(layout, tmp_path / "x.tar", mode)) == opened(layout)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_large_files_of_an_archive_are_holes(tmp_path, mode):
    """Folders come before them, as in every image; what is small, and what is no tar, is there byte for byte."""
    app = layouts.tar([("pih/bundle.json", listing()), ("pih/lock.json", TEXT)])
    titles = {"history": [{"comment": title} for title in ("app", "weights", "more", "small")]}
    weights = random.Random(0).randbytes(17 << 20)  # what compresses well is a bomb
    folders = [("pih", None), ("pih/weights", None)]
    large = layouts.tar([*folders, ("pih/weights/weights.safetensors", weights)])
    several = layouts.tar(
        [*folders, ("pih/weights/a", weights), ("pih/weights/b", b"b" * 1000), ("pih/weights/c", weights)]
    )
    small = layouts.tar([(f"pih/weights/{name}", name.encode() * (3 << 20)) for name in "ab"])
    layout = layouts.write(
        tmp_path / "layout",
        [app, large, several, small],
        change=lambda part, value: value | titles if part == "config" else value,
        types=[layouts.GZIP, layouts.TAR, layouts.TAR, layouts.TAR],
    )
    path = packed(layout, tmp_path / "x.tar", mode)
    assert opened(path).contents.layers == opened(layout).contents.layers
    with archive.outlined(path) as folder:
        for blob in (folder / "blobs/sha256").iterdir():
            whole = (layout / "blobs/sha256" / blob.name).read_bytes()
            if whole in (large, several):
                assert blob.read_bytes() == whole.replace(weights, bytes(len(weights)))
                assert blob.stat().st_blocks * 512 < 64 << 10
            else:
                assert blob.read_bytes() == whole
    with archive.unpacked(path) as folder:
        assert {blob.read_bytes() for blob in (folder / "blobs/sha256").iterdir()} >= {large, several}


@pytest.mark.parametrize("keep", [10_000, 20 << 20, (32 << 20) + 2000])
def test_an_archive_that_ends_within_its_large_file(tmp_path, keep):
    large = layouts.tar([("pih", None), ("pih/weights", bytes(32 << 20))])
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo(f"blobs/sha256/{'0' * 64}")
        entry.size = len(large)
        tar.addfile(entry, io.BytesIO(large))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SealError, match="unexpected end of data"), archive.outlined(path):
        pass


def test_what_is_wrong_in_an_archive_is_told_of_the_archive(tmp_path):
    layout = layouts.write(tmp_path / "layout", [layouts.tar([("pih/other", b"")])])
    path = packed(layout, tmp_path / "x.tar", "w")
    with pytest.raises(SealError, match="the image has no /pih") as failure:
        opened(path)
    assert failure.value.where == str(path)


@pytest.mark.parametrize("above", [(), ("root",), ("current", "root")])
def test_an_installation_is_found_below_its_prefix(root, tmp_path, above):
    place = tmp_path.joinpath("prefix", *above)
    place.parent.mkdir(parents=True, exist_ok=True)
    root.rename(place)
    held = opened(tmp_path / "prefix")
    assert held.lock == LOCK
    assert not held.sealable


def test_an_unpacked_root_has_no_digests_of_layers(root):
    held = opened(root)
    assert held.lock == LOCK
    assert [(layer.name, layer.digest) for layer in held.contents.layers] == [("app", "")]
    assert held.contents.digest == ""


def test_a_lock_that_is_not_the_listed_one(root):
    (root / "pih" / "lock.json").write_bytes(TEXT + b"\n")
    with pytest.raises(SealError, match="not the lock that the bundle was built from"):
        opened(root)


def test_a_listed_lock_that_is_no_lock(root):
    (root / "pih" / "lock.json").write_bytes(b"{}")
    (root / "pih" / "bundle.json").write_bytes(listing(b"{}"))
    with pytest.raises(LockError, match="lock schema null"):
        opened(root)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, listing(files=1), listing(files=[{}])])
def test_a_list_of_files_that_is_none(root, text):
    (root / "pih" / "bundle.json").write_bytes(text)
    with pytest.raises(SealError):
        opened(root)


def test_a_root_without_its_lock(root):
    (root / "pih" / "lock.json").unlink()
    with pytest.raises(SealError, match="cannot be read"):
        opened(root)


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_an_archive_that_leaves_its_folder(tmp_path, name):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(SealError, match="is no part of an image layout"):
        opened(tmp_path / "x.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.tar"]


@pytest.mark.parametrize("data", [b"", b"no archive" * 100])
def test_a_file_that_is_no_archive(tmp_path, data):
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(SealError):
        opened(tmp_path / "x.tar")


def test_an_archive_that_is_cut_short(layout, tmp_path):
    path = packed(layout, tmp_path / "x.tar", "w:gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SealError):
        opened(path)


def damaged(path, at):
    data = bytearray(path.read_bytes())
    for offset in range(at, len(data), 7):
        data[offset] ^= 0xFF
    path.write_bytes(data)


def test_damage_within_what_is_compressed(layout, tmp_path):
    packed(layout, tmp_path / "x.tar", "w:gz")
    for at in range(12, 400, 13):
        path = tmp_path / f"{at}.tar"
        path.write_bytes((tmp_path / "x.tar").read_bytes())
        damaged(path, at)
        with pytest.raises(SealError):
            opened(path)
    for blob in (layout / "blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            damaged(blob, 30)
    with pytest.raises(SealError):
        opened(layout)


def test_nothing_there(tmp_path):
    with pytest.raises(SealError, match="not an OCI image layout"):
        opened(tmp_path / "none")
