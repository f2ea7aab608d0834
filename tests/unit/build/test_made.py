"""Entries that were made: found while they are what was recorded, removed and told of once they are not."""

import json
import os

import pytest

from pih.build import made
from pih.build.progress import Dropped
from pih.build.store import open_store

KEY = "k" * 64


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


@pytest.fixture
def events():
    return []


@pytest.fixture
def look(store, events):
    return lambda: made.find(store, "steps", KEY, name="thing", listener=events.append)


@pytest.fixture
def entry(store, events):
    return published(store, events, "bytes")


def published(store, events, text):
    with store.workspace() as work:
        output = work / "entry/output"
        (output / "folder").mkdir(parents=True)
        (output / "folder/file").write_text(text)
        (output / "link").symlink_to("folder/file")
        return made.publish(store, work / "entry", "steps", KEY, name="thing", listener=events.append, facts={"a": 1})


def test_what_was_published_is_found(entry, look, store, events):
    assert look() == entry
    assert json.loads((store.place("steps", KEY) / "meta.json").read_bytes())["a"] == 1
    assert made.intact(store, "steps", KEY, name="thing", listener=events.append)
    assert events == []


EDITS = {
    "another text": lambda place: (place / "output/folder/file").write_text("other"),
    "the same length": lambda place: (place / "output/folder/file").write_text("bytez"),
    "a file more": lambda place: (place / "output/new").touch(),
    "a file less": lambda place: (place / "output/folder/file").unlink(),
    "a link elsewhere": lambda place: ((place / "output/link").unlink(), (place / "output/link").symlink_to("folder")),
    "executable": lambda place: (place / "output/folder/file").chmod(0o755),
    "no output": lambda place: (place / "output").rename(place / "other"),
    "no meta": lambda place: (place / "meta.json").unlink(),
    "meta is a folder": lambda place: ((place / "meta.json").unlink(), (place / "meta.json").mkdir()),
    "empty": lambda place: [path.rename(place.parent.parent / path.name) for path in place.iterdir()],
    "a file in its place": lambda place: (place.rename(place.parent.parent / "gone"), place.write_text("x")),
    "a link in its place": lambda place: (place.rename(place.parent.parent / "gone"), place.symlink_to("nowhere")),
} | {
    f"meta {text[:9]!r}": lambda place, text=text: (place / "meta.json").write_text(text)
    for text in ("", "{", "{}", "null", "[]", '{"output": 1}', '{"output": "../x"}', "[" * 100_000, "\x00")
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_is_dropped_once_and_made_again(entry, look, store, events, edit):
    place = store.place("steps", KEY)
    EDITS[edit](place)
    assert look() is None
    assert events == [Dropped("thing")]
    assert not os.path.lexists(place)
    assert look() is None
    assert published(store, events, "bytes") == entry == look()
    assert events == [Dropped("thing")]
    assert list((store.root / "tmp").iterdir()) == []


def test_the_same_bytes_with_other_times_are_as_good(entry, look, store, events):
    os.utime(entry.path / "folder/file", (0, 0))
    before = (store.place("steps", KEY) / "meta.json").read_bytes()
    assert look() == entry
    assert events == []
    after = (store.place("steps", KEY) / "meta.json").read_bytes()
    assert before != after
    assert look() == entry
    assert (store.place("steps", KEY) / "meta.json").read_bytes() == after


def test_bytes_that_changed_by_themselves_are_found_by_reading(entry, look, store, events):
    path = entry.path / "folder/file"
    times = path.stat()
    path.write_text("bytez")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert look() == entry
    assert not made.intact(store, "steps", KEY, name="thing", listener=events.append)
    assert events == [Dropped("thing")]
    assert look() is None


def test_an_entry_that_is_not_whole_gives_way_to_a_new_one(store, look, events):
    place = store.place("steps", KEY)
    (place / "output").mkdir(parents=True)
    assert published(store, events, "bytes").path.is_dir()
    assert look()


def test_the_first_of_two_wins(entry, store, events):
    assert published(store, events, "other") == entry
    assert (entry.path / "folder/file").read_text() == "bytes"
