"""What was made and is not used any more goes; what a worker runs from, or was used meanwhile, stays."""

import os
import time

import pytest

from pih.build import made, prune
from pih.build.progress import silent
from pih.build.store import open_store
from pih_runtime.errors import WorkerError

OLD, NEW = "a" * 64, "b" * 64
LONG_AGO = 1_000_000_000.0


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def publish(store, kind, key, step, used):
    with store.workspace() as work:
        output = work / "entry/output"
        output.mkdir(parents=True)
        (output / "file").write_bytes(b"x" * 5000)
        found = made.publish(store, work / "entry", kind, key, name=step, listener=silent, facts={"step": step})
    os.utime(store.place(kind, key), (used, used))
    return found


def test_the_unused_are_named_and_go_the_longest_unused_first(store):
    publish(store, "steps", OLD, "kernels", LONG_AGO + 1)
    publish(store, "steps", NEW, "image", time.time())
    publish(store, "roots", OLD, "", LONG_AGO)
    found = prune.unused(store, LONG_AGO + 2)
    assert [(entry.kind, entry.key, entry.name, entry.used) for entry in found] == [
        ("roots", OLD, "roots", LONG_AGO), ("steps", OLD, "kernels", LONG_AGO + 1)
    ]  # fmt: skip
    assert all(5000 < entry.nbytes < 50_000 for entry in found)
    assert all(prune.remove(store, entry) for entry in found)
    assert prune.unused(store, LONG_AGO + 2) == []
    assert not any(prune.remove(store, entry) for entry in found)
    assert made.find(store, "steps", NEW, name="image", listener=silent)
    assert not list((store.root / "tmp").iterdir())


def test_a_lookup_is_a_use(store):
    found = publish(store, "steps", OLD, "kernels", LONG_AGO)
    [entry] = prune.unused(store, LONG_AGO + 1)
    assert made.find(store, "steps", OLD, name="kernels", listener=silent) == found
    assert prune.unused(store, LONG_AGO + 1) == []
    assert not prune.remove(store, entry)
    assert found.path.is_dir()


def test_what_a_worker_runs_from_stays_until_it_has_ended(store):
    found = publish(store, "roots", OLD, "", LONG_AGO)
    [entry] = prune.unused(store, LONG_AGO + 1)
    with made.held(found.path):
        assert not prune.remove(store, entry)
        assert (found.path / "file").is_file()
    assert prune.remove(store, entry)
    with pytest.raises(WorkerError, match="just taken away"), made.held(found.path):
        pytest.fail("there is nothing to run from")


def test_bytes_that_have_another_name_elsewhere_are_not_counted(store, tmp_path):
    found = publish(store, "steps", OLD, "kernels", LONG_AGO)
    [before] = prune.unused(store, LONG_AGO + 1)
    os.link(found.path / "file", tmp_path / "elsewhere")
    [after] = prune.unused(store, LONG_AGO + 1)
    assert 5000 <= before.nbytes - after.nbytes < 50_000
    assert prune.remove(store, after)
    assert (tmp_path / "elsewhere").read_bytes() == b"x" * 5000


def test_what_no_lookup_would_find_is_left_alone(store, tmp_path):
    (store.root / "steps/stray").write_text("")
    (store.root / "roots/away").symlink_to(tmp_path)
    for place in ("steps/stray", "roots/away"):
        os.utime(store.root / place, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    assert prune.unused(store, LONG_AGO + 1) == []
