"""What publishers and users write: whole or not at all, one change after the other, and no name in place of another."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from pih.trust import add, index, keyring, keys, publish
from pih.writing import replace, replace_all
from pih_runtime.errors import ResolutionError, UsageError
from tests.support.disk import small_disk
from tests.unit.trust import made


def held(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WRITE = {
    "catalog.json": lambda shelf, key, _: publish.sign_catalog(shelf, "", key),
    "rotation.json": publish.rotate,
    "a/plugin.toml.sig": lambda shelf, key, _: publish.sign_plugin(shelf / "a", key),
    "a.tar": lambda shelf, key, _: publish.pack(shelf / "a", shelf / "a.tar", key),
}


@pytest.mark.parametrize("file", WRITE)
def test_a_full_disk_changes_nothing_and_is_told_by_the_file(tmp_path, file):
    key, new = made.key(tmp_path), made.key(tmp_path, "new")
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    made.withdraw(shelf, key, "wrong sums")
    before = held(shelf)
    made.plugin(shelf / "b", version="0.2.0")
    added = held(shelf)
    with small_disk(), pytest.raises(OSError, match="File too large") as caught:
        WRITE[file](shelf, key, new)
    assert caught.value.filename == str(shelf / file)
    assert held(shelf) == added
    assert before.items() <= added.items()


def test_no_file_is_renamed_before_all_are_written(tmp_path):
    """There is room for the signature, and none for the archive: the old pair stays a pair."""
    files = {tmp_path / "signature": "x" * 8, tmp_path / "archive": b"x" * 80}
    for path in files:
        path.write_text("old")
    with small_disk(), pytest.raises(OSError, match="File too large"):
        replace_all(files)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(files, "old")


def test_half_a_key_is_none(tmp_path):
    with small_disk(), pytest.raises(OSError, match="File too large") as caught:
        keys.generate(tmp_path / "k.pem")
    assert caught.value.filename == str(tmp_path / "k.pem")
    assert list(tmp_path.iterdir()) == []


def test_changes_of_several_hands_are_all_kept(tmp_path):
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    names = [f"ed25519:{number:032x}" for number in range(16)]

    def revoke(name):
        keyring.change(environment, lambda ring: add.revoked(ring, name, "stolen"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(revoke, names))
    assert [key.fingerprint for key in keyring.load(environment).keys] == names


def test_a_revocation_that_came_meanwhile_stands(tmp_path):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    offered = add.offer(shelf, keyring.Keyring())
    ring = add.revoked(keyring.Keyring(), offered.fingerprint, "stolen")
    with pytest.raises(ResolutionError, match="was revoked: stolen"):
        add.accepted(offered, ring)


def test_a_key_that_vouched_and_was_revoked_meanwhile_vouches_no_more(tmp_path):
    old, new = made.key(tmp_path, "old"), made.key(tmp_path, "new")
    shelf = made.vendor(tmp_path / "shelf", old, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    publish.rotate(shelf, old, new)
    offered = add.offer(shelf, ring)
    with pytest.raises(UsageError, match="the keyring was changed meanwhile"):
        add.accepted(offered, add.revoked(ring, offered.before.fingerprint, "stolen"))


def test_a_second_catalog_does_not_take_the_place_of_the_first(tmp_path):
    key = made.key(tmp_path)
    first = made.vendor(tmp_path / "first", key, ("a", {}))
    second = made.vendor(tmp_path / "second", key, ("a", {"version": "0.2.0"}))
    ring = add.accepted(add.offer(first, keyring.Keyring()), keyring.Keyring())
    with pytest.raises(UsageError, match=f"{first} is called vendor already") as caught:
        add.offer(second, ring)
    assert caught.value.fix == "call this one otherwise with --name, or pih catalog remove vendor"
    ring = add.accepted(add.offer(second, ring, "other"), ring)
    assert {item.name: item.path for item in ring.catalogs} == {"vendor": str(first), "other": str(second)}
    assert {origin.source for origin in made.catalog_of(tmp_path, "", ring).origins.values()} == {
        "catalog vendor",
        "catalog other",
    }
    assert add.accepted(add.offer(first, ring), ring) == ring
    assert add.accepted(add.offer(second, ring), ring) == ring


@pytest.mark.parametrize("name", ["", "a b", "../x", "a\x1b[2J", "x" * 100_000, "v\n"])
def test_what_no_catalog_is_called(tmp_path, name):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    if name:
        with pytest.raises(UsageError, match="cannot be a catalog's name"):
            publish.sign_catalog(shelf, name, key)
    listed, _ = index.read(shelf)
    text = index.text(listed).replace('"vendor"', made.quoted(name))
    (shelf / index.INDEX).write_text(text)
    with pytest.raises(ResolutionError, match=r"(?s)name: .* is no catalog's name") as caught:
        index.read(shelf)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("key", "value"), [("id", "x" * 1000), ("version", "1\x1b"), ("sha256", "0")])
def test_an_entry_says_what_it_can_be(tmp_path, key, value):
    shelf = made.vendor(tmp_path / "shelf", made.key(tmp_path), ("a", {}))
    entry = index.read(shelf)[0].plugins[0]
    text = (shelf / index.INDEX).read_text().replace(made.quoted(getattr(entry, key)), made.quoted(value))
    (shelf / index.INDEX).write_text(text)
    with pytest.raises(ResolutionError, match=rf"{key}: .* is none"):
        index.read(shelf)


def test_a_catalog_that_another_has_signed_is_added_again_first(tmp_path):
    """Both keys are believed; still the place was added on the word of one of them."""
    one, other = made.key(tmp_path, "one"), made.key(tmp_path, "other")
    shelf = made.vendor(tmp_path / "shelf", one, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), made.believing(other))
    publish.sign_catalog(shelf, "", other)
    (refused,) = made.catalog_of(tmp_path, "", ring).refused
    ours, theirs = (keys.fingerprint(keys.public_of(key)) for key in (one, other))
    assert refused.why == f"it was added as signed by {ours}, and is now signed by {theirs}"
    assert refused.fix == f"if its publisher says so: pih catalog add {shelf}"
    assert made.catalog_of(tmp_path, "", add.accepted(add.offer(shelf, ring), ring)).origins


def test_a_key_that_took_the_place_of_another_signs_for_it_everywhere(tmp_path):
    old, new = made.key(tmp_path, "old"), made.key(tmp_path, "new")
    shelves = [made.vendor(tmp_path / name, old, ("a", {})) for name in ("one", "two")]
    ring = keyring.Keyring()
    for shelf in shelves:
        ring = add.accepted(add.offer(shelf, ring, shelf.name), ring)
        publish.rotate(shelf, old, new)
    ring = add.accepted(add.offer(shelves[0], ring), ring)
    assert made.catalog_of(tmp_path, "", ring).refused == ()
    looped = attrs.evolve(ring.keys[0], state="rotated", note=ring.keys[0].fingerprint)
    assert not keyring.Keyring(keys=(looped,)).succeeds("other", looped.fingerprint)


def test_a_file_that_is_no_plugins_archive_stays(tmp_path):
    key = made.key(tmp_path)
    made.plugin(tmp_path / "x")
    thesis = tmp_path / "thesis.tar"
    thesis.write_text("dear")
    with pytest.raises(UsageError, match="no plugin's archive"):
        publish.pack(tmp_path / "x", thesis, key)
    assert thesis.read_text() == "dear"
    for _ in range(2):
        publish.pack(tmp_path / "x", tmp_path / "x.tar", key)


def test_a_link_stays_one_and_what_is_no_file_stays_what_it_is(tmp_path):
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    replace(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to the pipe").symlink_to("pipe")
    for place in (tmp_path / "pipe", tmp_path / "to the pipe", Path("/dev/null")):
        with pytest.raises(OSError, match="no plain file") as refused:
            replace(place, "x")
        assert refused.value.filename == str(place)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_of_any_other_and_an_old_one_keeps_its_own(tmp_path, mask, mode):
    (tmp_path / "old").write_text("before")
    (tmp_path / "old").chmod(0o640)
    before = os.umask(mask)
    try:
        for name in ("new", "old"):
            replace(tmp_path / name, "after")
        replace(tmp_path / "secret", "x", mode=0o600)
        (tmp_path / "secret").chmod(0o644)
        replace(tmp_path / "secret", "x", mode=0o600)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": mode, "old": 0o640, "secret": 0o600}
