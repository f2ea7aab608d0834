"""Locks: stable text, strict reading, whole writing, and the words of every refusal."""

import errno
import json
import time
from pathlib import Path

import attrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih import catalog, lock, profile, stale
from pih.schema import json_schema
from pih_runtime import canonical
from pih_runtime.errors import LockError

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "profiles").glob("*.lock.json"))
TEXT = SHIPPED[0].read_text()
LOCK = lock.from_json(TEXT, "x.lock.json")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_lock_read_and_written_again_is_the_same_bytes(path):
    assert lock.to_json(lock.read(path)) == path.read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_profile_has_a_lock_that_answers_it(path):
    stale.check(lock.read(lock.path_for(path)), profile.load(path), catalog.load(ROOT))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_locks_follow_their_json_schema(path):
    jsonschema.validate(json.loads(path.read_text()), json.loads(json_schema(lock.LockFile, "lock")))


def test_nothing_that_holds_for_this_host_only_is_in_a_lock():
    for path in SHIPPED:
        assert str(ROOT) not in path.read_text()
        assert "native" not in path.read_text()
        assert "://" not in path.read_text()


def test_reading_and_matching_is_quick():
    path = ROOT / "profiles" / "smollm2-cpu.toml"
    started = time.process_time()
    stale.check(lock.read(lock.path_for(path)), profile.load(path), catalog.load(ROOT))
    assert time.process_time() - started < 0.2  # of the processor: fifteen times what it takes


def changed(**values):
    return json.dumps(canonical.sealed({**json.loads(TEXT), **values}))


def without(key):
    return json.dumps(canonical.sealed({name: value for name, value in json.loads(TEXT).items() if name != key}))


CURE = "\n  to fix: write the lock again: pih lock"
MESSAGES = {
    "not JSON": ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)" + CURE),
    "not an object": ("[]", "lock schema null is not 1" + CURE),
    "another text than UTF-8": (
        TEXT.encode("utf-16"),
        "not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte" + CURE,
    ),
    "a byte order mark": (
        TEXT.encode("utf-8-sig"),
        "not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)" + CURE,
    ),
    "what no other reader takes for a number": (
        TEXT.replace('"threads": 2', '"threads": NaN'),
        "not JSON: NaN is not a JSON number" + CURE,
    ),
    "a number without end": (
        TEXT.replace('"threads": 2', '"threads": ' + "1" * 5000),
        "not JSON: a number of 5000 digits is too long" + CURE,
    ),
    "a schema without end": ('{"schema": ' + "[" * 900 + "]" * 900 + "}", "lock schema a list is not 1" + CURE),
    "another schema": (changed(schema=2), "lock schema 2 is not 1" + CURE),
    "a missing key": (without("budget"), "budget: missing" + CURE),
    "an unknown key": (changed(buget={}), "buget: unknown key" + CURE),
    "a wrong type": (changed(pih=3), "pih: 3 is not a string" + CURE),
    "a string for a list": (changed(start_order="abc"), 'start_order: "abc" is not a list' + CURE),
    "a wrong item": (changed(start_order=[1]), "start_order[0]: 1 is not a string" + CURE),
    "a wrong value deep inside": (
        changed(plan={"sha256": "", "calls": "4"}),
        'plan.calls: "4" is not a whole number' + CURE,
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_refusal_names_the_key_and_the_cure(case):
    text, message = MESSAGES[case]
    with pytest.raises(LockError) as caught:
        lock.from_json(text, "x.lock.json")
    assert str(caught.value) == f"x.lock.json: {message}"
    assert caught.value.exit_code == 5


def test_a_lock_that_is_not_there(tmp_path):
    with pytest.raises(LockError) as caught:
        lock.read(tmp_path / "x.lock.json")
    assert str(caught.value) == (
        f"{tmp_path}/x.lock.json: cannot read the lock: No such file or directory\n  to fix: write it: pih lock"
    )


@given(st.data())
def test_a_damaged_lock_is_read_or_refused_and_never_breaks_the_reader(data):
    at = data.draw(st.integers(0, len(TEXT) - 1))
    damaged = TEXT[:at] + data.draw(st.text(max_size=3)) + TEXT[at + data.draw(st.integers(0, 30)) :]
    try:
        lock.from_json(damaged, "x")
    except LockError:
        return


def test_writing_replaces_the_whole_file(tmp_path):
    path = tmp_path / "x.lock.json"
    path.write_text("an older lock that is much longer" * 10_000)
    lock.write(LOCK, path)
    assert lock.read(path) == LOCK
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.lock.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_writing_that_fails_leaves_the_old_lock_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "x.lock.json"
    path.write_text("old")

    def broken(_):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        lock.write(LOCK, path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.lock.json"]


def test_a_lock_of_another_profile_names_pih_lock():
    path = ROOT / "profiles" / f"{LOCK.profile.name}.toml"
    intent, known = profile.load(path), catalog.load(ROOT)
    other = attrs.evolve(LOCK, profile=attrs.evolve(LOCK.profile, sha256="0" * 64))
    with pytest.raises(LockError) as caught:
        stale.check(other, intent, known)
    assert str(caught.value) == (
        f"{lock.path_for(path)}: the lock was made from another state of {path}\n  to fix: pih lock --profile {path}"
    )


def edited(change):
    data = json.loads(TEXT)
    change(data)
    return json.dumps(data)


EDITS = {
    "a number": (lambda data: data["limits"].update(context=77), "limits.context was changed"),
    "deep inside": (
        lambda data: data["plugins"][0]["permissions"].update(network="listen"),
        f"plugins[{LOCK.plugins[0].id}].permissions.network was changed",
    ),
    "in two places": (
        lambda data: (data["budget"].update(kv=1), data["artifacts"].pop()),
        "artifacts, budget.kv were changed",
    ),
    "an entry of a list": (
        lambda data: data["artifacts"][0].update(size=1),
        f"artifacts[{LOCK.artifacts[0].name}].size was changed",
    ),
    "all of a list": (
        lambda data: [item.update(size=3) for item in data["artifacts"]],
        ", ".join(f"artifacts[{item.name}].size" for item in LOCK.artifacts[:3])
        + f", {len(LOCK.artifacts) - 3} more of artifacts were changed",
    ),
    "the marks": (
        lambda data: data["digests"].update(limits=data["digests"]["limits"][:-2] + "zz"),
        "limits.tokens was changed",
    ),
    "a digest of another": (lambda data: data["digests"].update(model="0" * 64), "model was changed"),
    "no digest of one": (lambda data: data["digests"].pop("model"), "model was added"),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_by_hand_is_refused_and_its_place_named(case):
    change, words = EDITS[case]
    with pytest.raises(LockError) as caught:
        lock.from_json(edited(change), "x.lock.json")
    assert str(caught.value) == f"x.lock.json: edited after it was written: {words}{CURE}"


def test_a_lock_without_digests_is_refused():
    for key in ("digests", "plugins"):
        with pytest.raises(LockError, match=f"{key}: missing") as caught:
            lock.from_json(edited(lambda data, key=key: data.pop(key)), "x.lock.json")
        assert caught.value.fix == "write the lock again: pih lock"


def test_layout_and_order_of_keys_are_no_edit():
    def reversed_keys(value):
        if isinstance(value, dict):
            return {key: reversed_keys(value[key]) for key in reversed(value)}
        return [reversed_keys(item) for item in value] if isinstance(value, list) else value

    assert lock.from_json(json.dumps(reversed_keys(json.loads(TEXT)), indent=7), "x") == LOCK
