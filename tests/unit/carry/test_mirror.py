"""A mirror is checked file by file; what is not what its listing says, or is not listed, does not reach the store."""

import hashlib
import io
import json
import os
import random
import shutil
import tarfile

import pytest

from pih import lock as locks
from pih.build.progress import FetchFailed, silent
from pih.build.store import open_store
from pih.carry import incoming, listing, mirror
from pih_runtime.errors import FetchError, UsageError, WorkerError
from tests.support.artifacts import ROOT
from tests.unit.bundle.layouts import tar as archive

LOCK = ROOT / "profiles" / "qwen3-cpu.lock.json"
WHEEL = "tiny-1.0-py3-none-any.whl"


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


@pytest.fixture(params=["folder", "archive"])
def output(request, tmp_path):
    return tmp_path / "out" / ("mirror" if request.param == "folder" else "mirror.tar")


def a_mirror(tmp_path, output):
    """Of three artifacts and a wheel; returns their bytes by digest."""
    store = open_store(tmp_path / "source")
    held = {}
    for number in range(3):
        (tmp_path / "file").write_bytes(b"artifact %d " % number * 100)
        held[store.add_file(tmp_path / "file")] = (tmp_path / "file").read_bytes()
    wheel = tmp_path / WHEEL
    wheel.write_bytes(b"wheel " * 50)
    found = listing.Listing(
        1,
        (listing.LockRef("tiny", "0" * 64),),
        tuple(listing.Artifact(f"a{at}", "1", digest, len(data)) for at, (digest, data) in enumerate(held.items())),
        (listing.Wheel(WHEEL, hashlib.sha256(wheel.read_bytes()).hexdigest(), 300),),
        ("3.11",),
        (),
    )
    mirror.write(found, store, [wheel], output, silent)
    return held


def test_there_and_back(tmp_path, store, output):
    held = a_mirror(tmp_path, output)
    arrived = incoming.bring(output, store, silent)
    assert set(arrived.added) == set(held)
    assert {digest: store.path(digest).read_bytes() for digest in held} == held
    assert incoming.bring(output, store, silent).added == ()


def test_an_archive_of_the_folder_as_tar_makes_it(tmp_path, store):
    held = a_mirror(tmp_path, tmp_path / "mirror")
    with tarfile.open(tmp_path / "m.tar", "w") as made:
        made.add(tmp_path / "mirror", ".")
    assert set(incoming.bring(tmp_path / "m.tar", store, silent).added) == set(held)


def test_what_is_wrong_with_the_first_file_is_said(tmp_path, store, monkeypatch):
    a_mirror(tmp_path, tmp_path / "mirror")
    with tarfile.open(tmp_path / "m.tar", "w") as made:
        for name in ("wheels", "mirror.json", "sha256"):
            made.add(tmp_path / "mirror" / name, name)
    with pytest.raises(FetchError, match=r"comes before mirror\.json"):
        incoming.bring(tmp_path / "m.tar", store, silent)
    (tmp_path / "mirror/extra").touch()
    with pytest.raises(FetchError, match="'extra' is not listed"):
        incoming.bring(tmp_path / "mirror", store, silent)
    monkeypatch.setattr(listing, "MOST", 10)
    with pytest.raises(FetchError, match=r"mirror\.json has [0-9]+ bytes, and may have 10"):
        incoming.bring(tmp_path / "mirror", store, silent)


def test_no_folder_is_walked_for_a_mirror_that_it_is_not(tmp_path, store, monkeypatch):
    monkeypatch.setattr(incoming.tree, "below", lambda _: pytest.fail("walked"))
    with pytest.raises(FetchError, match=r"has no mirror\.json"):
        incoming.bring(tmp_path, store, silent)


def test_the_same_mirror_is_the_same_bytes(tmp_path):
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).mkdir()
        a_mirror(tmp_path / name, tmp_path / f"{name}.out.tar")
    assert (tmp_path / "a.tar.out.tar").read_bytes() == (tmp_path / "b.tar.out.tar").read_bytes()


def test_a_mirror_takes_the_place_of_a_mirror_only(tmp_path, output):
    a_mirror(tmp_path, output)
    a_mirror(tmp_path, output)
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "letter").write_text("dear")
    with pytest.raises(UsageError, match="no mirror"):
        a_mirror(tmp_path, other)
    assert (other / "letter").exists()


def test_wrong_bits_in_an_archive(tmp_path, store):
    output = tmp_path / "mirror.tar"
    held = a_mirror(tmp_path, output)
    data = output.read_bytes()
    chance = random.Random(3)
    strange, passed, refused = [], 0, 0
    for _ in range(200):
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        output.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        try:
            incoming.bring(output, store, silent)
            passed += 1  # padding, a time, the last block: nothing that is read says anything else
        except FetchError:
            refused += 1
        strange += [path for path in (store.root / "sha256").iterdir() if path.read_bytes() != held.get(path.name)]
    assert not strange
    assert refused > 100
    assert passed + refused == 200


def test_wrong_bits_in_a_folder(tmp_path, store):
    output = tmp_path / "mirror"
    a_mirror(tmp_path, output)
    chance = random.Random(4)
    files = [path for path in output.rglob("*") if path.is_file() and path.name != listing.NAME]
    for _ in range(100):
        path = chance.choice(files)
        data = path.read_bytes()
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        with pytest.raises(FetchError, match=f"(?s){path.name}.*not the listed one|not the listed one"):
            incoming.bring(output, store, silent)
        path.write_bytes(data)


def change_listing(output, change):
    path = output / listing.NAME
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))


def test_a_folder_that_does_not_fit_its_listing(tmp_path, store):
    output = tmp_path / "mirror"
    held = a_mirror(tmp_path, output)
    first = output / "sha256" / next(iter(held))

    def refused(words):
        with pytest.raises(FetchError, match=words):
            incoming.bring(output, store, silent)

    kept = first.read_bytes()
    first.unlink()
    refused("is listed, and missing")
    first.symlink_to("/etc/passwd")
    refused("no plain file")
    first.unlink()
    os.mkfifo(first)
    refused("no plain file")
    first.unlink()
    first.write_bytes(kept + b"more")
    refused("bytes where mirror.json says")
    first.write_bytes(kept)
    (output / "wheels" / "notes.txt").write_text("hello")
    refused("not listed")
    (output / "wheels" / "notes.txt").unlink()
    incoming.bring(output, store, silent)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema=2),
        lambda data: data.update(more=1),
        lambda data: data["artifacts"][0].update(sha256="../../etc/passwd"),
        lambda data: data["artifacts"][0].update(size=-1),
        lambda data: data["wheels"][0].update(file="../evil.whl"),
        lambda data: data["wheels"][0].update(file="evil.txt"),
        lambda data: data.pop("locks"),
    ],
)
def test_a_listing_that_is_none(tmp_path, store, change):
    output = tmp_path / "mirror"
    a_mirror(tmp_path, output)
    change_listing(output, change)
    with pytest.raises(FetchError):
        incoming.bring(output, store, silent)


@pytest.mark.parametrize(
    "entry",
    [
        ("../out", b"x"),
        ("/out", b"x"),
        ("sha256/link", ("->", "/etc/passwd")),
        ("sha256/hard", ("=", "mirror.json")),
        ("sha256/null", ("dev", "")),
        ("mirror.json", b"{}"),
    ],
)
def test_an_archive_with_more_than_a_mirror(tmp_path, store, entry):
    folder = tmp_path / "mirror"
    a_mirror(tmp_path, folder)
    entries = [
        (path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()
    ]
    output = tmp_path / "mirror.tar"
    output.write_bytes(archive([*entries, entry]))
    with pytest.raises(FetchError):
        incoming.bring(output, store, silent)
    assert not (tmp_path / "out").exists()


def test_what_is_no_mirror(tmp_path, store):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.tar").write_text("hello" * 1000)
    (tmp_path / "none.tar").write_bytes(b"")
    with tarfile.open(tmp_path / "other.tar", "w") as other:
        other.addfile(tarfile.TarInfo("a"), io.BytesIO())
    for name in ("empty", "text.tar", "none.tar", "other.tar"):
        with pytest.raises(FetchError):
            incoming.bring(tmp_path / name, store, silent)


def test_the_closure_of_a_lock_and_what_is_left_out(tmp_path):
    locked = mirror.Locked(locks.read(LOCK), LOCK)
    image, both = mirror.needed(locked, ["image"]), mirror.needed(locked, ["image", "weights"])
    names = {artifact.name for artifact in both}
    assert names == {artifact.name for artifact in locked.lock.artifacts}
    rest = names - {artifact.name for artifact in image}
    assert any("safetensors" in name for name in rest)
    assert {"ziglang", "python3.11-minimal", "busybox-static"} <= {artifact.name for artifact in image}
    left = mirror.listed([locked], image, [], ["3.11"]).left_out
    assert all(any(name in words and "--weights" in words for words in left) for name in rest)
    assert any("requirements/build.txt" in words for words in left)
    assert not any("--weights" in words for words in mirror.listed([locked], both, [], ["3.11"]).left_out)


def test_a_full_disk_leaves_nothing_and_names_the_mirror(tmp_path, monkeypatch):
    def full(source, _):
        raise OSError(28, "No space left on device", source)

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space") as told:
        a_mirror(tmp_path, tmp_path / "out" / "mirror")
    assert told.value.filename == str(tmp_path / "out" / "mirror")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_no_mirror_stays_whatever_its_name(tmp_path):
    important = tmp_path / "important.tar"
    with tarfile.open(important, "w") as other:
        other.addfile(tarfile.TarInfo("thesis"), io.BytesIO())
    a_mirror(tmp_path, tmp_path / "more.tar")
    with tarfile.open(tmp_path / "more.tar", "a") as more:
        more.addfile(tarfile.TarInfo("thesis"), io.BytesIO())
    a_mirror(tmp_path, tmp_path / "more")
    (tmp_path / "more/wheels/thesis").write_text("dear")
    (tmp_path / "text.tar").write_text("dear" * 1000)
    (tmp_path / "link.tar").symlink_to(important)
    (tmp_path / "mine").write_text("dear")
    os.mkfifo(tmp_path / "pipe.tar")
    for name in ("important.tar", "more.tar", "more", "text.tar", "link.tar", "mine", "pipe.tar"):
        before = (tmp_path / name).lstat()
        with pytest.raises(UsageError, match="is no mirror"):
            a_mirror(tmp_path, tmp_path / name)
        after = (tmp_path / name).lstat()
        assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert (tmp_path / "more/wheels/thesis").exists()


def test_a_mirror_may_fill_an_empty_folder(tmp_path, store):
    (tmp_path / "out").mkdir()
    held = a_mirror(tmp_path, tmp_path / "out")
    assert set(incoming.bring(tmp_path / "out", store, silent).added) == set(held)


def test_a_pipe_is_not_waited_for(tmp_path, store):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="neither a folder nor a file"):
        incoming.bring(tmp_path / "pipe", store, silent)


def test_whatever_ends_it_is_told_to_who_listens(tmp_path, store, monkeypatch):
    a_mirror(tmp_path, tmp_path / "mirror")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.__class__, "adopt", full)
    told = []
    with pytest.raises(WorkerError, match="No space left"):
        incoming.bring(tmp_path / "mirror", store, told.append)
    assert isinstance(told[-1], FetchFailed)
