"""The content-addressed store: what enters is checked, what is killed is cleaned, many may work at once."""

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih.build.store import default_root, open_store
from pih.trust import keyring
from pih_runtime.errors import FetchError, LockError, UsageError, WorkerError
from tests.unit.build.test_tree import nest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def entries(store):
    return sorted(path.name for path in (store.root / "tmp").iterdir())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(content=st.binary(max_size=3 << 10))
def test_a_file_is_found_by_its_digest(store, tmp_path, content):
    source = tmp_path / "source"
    source.write_bytes(content)
    digest = store.add_file(source)
    assert digest == hashlib.sha256(content).hexdigest()
    assert store.has(digest, len(content))
    assert not store.has(digest, len(content) + 1)
    assert store.path(digest).read_bytes() == content
    assert stat.S_IMODE(store.path(digest).stat().st_mode) == 0o444
    assert source.read_bytes() == content
    assert entries(store) == []


def test_adding_the_same_file_again_keeps_it(store, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    assert store.add_file(source) == store.add_file(source)


def test_a_file_that_cannot_be_read_is_named(store, tmp_path):
    with pytest.raises(FetchError, match=r"nothing.*cannot read"):
        store.add_file(tmp_path / "nothing")
    assert entries(store) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_digests_name_files(store, digest):
    with pytest.raises(FetchError, match="not a sha256"):
        store.path(digest)


@pytest.mark.parametrize(("digest", "size", "message"), [("0" * 64, 3, "got sha256"), (None, 4, "got 3 bytes")])
def test_what_is_not_what_the_lock_says_does_not_enter(store, digest, size, message):
    wanted = digest or hashlib.sha256(b"abc").hexdigest()
    with store.workspace() as work:
        (work / "file").write_bytes(b"abc")
        with pytest.raises(FetchError, match=message):
            store.adopt(work / "file", wanted, size)
    assert list((store.root / "sha256").iterdir()) == []


def test_a_damaged_file_is_removed_when_it_is_checked(store, tmp_path):
    (tmp_path / "source").write_bytes(b"abc")
    digest = store.add_file(tmp_path / "source")
    store.check(digest, 3)
    store.path(digest).chmod(0o644)
    store.path(digest).write_bytes(b"abd")
    with pytest.raises(FetchError, match="damaged"):
        store.check(digest, 3)
    assert not store.has(digest)


def test_a_whole_file_stays_though_a_lock_has_another_size_for_it(store, tmp_path):
    (tmp_path / "source").write_bytes(b"abc")
    digest = store.add_file(tmp_path / "source")
    with pytest.raises(LockError, match="the lock says 4 bytes, and the file of this digest has 3"):
        store.check(digest, 4)
    assert store.has(digest, 3)


def test_a_published_folder_is_whole_and_the_first_one_stays(store):
    for text in ("first", "second"):
        with store.workspace() as work:
            (work / "entry").mkdir()
            (work / "entry/file").write_text(text)
            place = store.publish(work / "entry", "steps", "key")
    assert (place / "file").read_text() == "first"
    assert entries(store) == []


def test_a_workspace_goes_away_when_its_work_fails(store):
    def work():
        with store.workspace() as folder:
            (folder / "file").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert entries(store) == []


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_has_is_kept(store):
    script = f"""
import sys, time, pathlib
from pih.build.store import open_store
with open_store(pathlib.Path({str(store.root)!r})).workspace() as work:
    (work / "file").write_text("x")
    print(work.name, flush=True)
    time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'runtime'}"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout
    name = process.stdout.readline().strip()
    with store.workspace():
        assert name in entries(store)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert name in entries(store)
    with store.workspace():
        assert name not in entries(store)


def test_many_threads_add_and_publish_the_same_things(store, tmp_path):
    (tmp_path / "source").write_bytes(b"x" * 100_000)

    def work(_):
        for _ in range(10):
            store.add_file(tmp_path / "source")
            with store.workspace() as folder:
                (folder / "entry").mkdir()
                store.publish(folder / "entry", "steps", "key")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert entries(store) == []
    assert len(list((store.root / "sha256").iterdir())) == 1


def test_the_store_is_where_the_user_says():
    assert default_root({"PIH_STORE": "/a"}) == Path("/a")
    assert default_root({"XDG_CACHE_HOME": "/c"}) == Path("/c/pih")
    assert default_root({"HOME": "/h"}) == Path("/h/.cache/pih")
    assert default_root({}) == Path.home() / ".cache/pih"


@pytest.mark.parametrize("name", ["PIH_STORE", "XDG_CACHE_HOME", "HOME"])
def test_a_store_that_is_elsewhere_for_every_folder_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"{name} is not an absolute path: rel store") as caught:
        default_root({name: "rel store"})
    assert caught.value.fix == f"export {name}='{tmp_path}/rel store'"


@pytest.mark.parametrize("place", [default_root, keyring.path_of])
def test_a_user_without_a_home_is_told_what_to_set(place, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # as for a number that /etc/passwd lacks
    with pytest.raises(UsageError, match="nothing says where your home folder is") as caught:
        place({})
    assert caught.value.fix.startswith("set HOME, or ")
    assert place({"PIH_STORE": "/s", "XDG_CONFIG_HOME": "/c"})


def test_a_store_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WorkerError, match=r"file.*PIH_STORE|PIH_STORE"):
        open_store(tmp_path / "file")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_troubles_of_the_disk_are_told_in_words_and_leave_nothing(store, number):
    def work():
        with store.workspace() as folder:
            (folder / "half").write_text("x")
            raise OSError(number, os.strerror(number), str(folder / "file"))

    with pytest.raises(WorkerError, match=os.strerror(number)) as failure:
        work()
    assert failure.value.where == str(store.root)
    assert failure.value.fix
    assert entries(store) == []


def test_a_store_that_cannot_be_written_is_named(store, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(store.root / "tmp/x"))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(WorkerError, match="Read-only") as failure, store.workspace():
        pass
    assert "PIH_STORE" in failure.value.fix
    assert entries(store) == []


def test_a_full_disk_is_not_a_fault_of_the_file_that_is_added(store, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(bytes(1 << 20))
    script = f"""
import pathlib, resource
from pih.build.store import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
open_store(pathlib.Path({str(store.root)!r})).add_file(pathlib.Path({str(source)!r}))
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'runtime'}"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert f"WorkerError: {store.root}: cannot work in the store: File too large" in done.stderr
    assert entries(store) == []


def test_other_errors_stay_what_they_are(store):
    with pytest.raises(FileNotFoundError), store.workspace() as work:
        (work / "nothing").read_bytes()


def test_what_cannot_be_removed_of_others_does_not_hinder(store):
    tmp = store.root / "tmp"
    (tmp / "folder.lock").mkdir()
    (tmp / "1-a.lock").touch()
    (tmp / "1-a").write_text("a file where a folder should be")
    (tmp / "1-b.lock").touch()
    (tmp / "1-b").mkdir()
    nest(tmp / "1-b", 1500)
    with store.workspace():
        pass
    assert entries(store) == ["folder.lock"]


def test_a_deep_workspace_goes_away(store):
    with store.workspace() as work:
        nest(work, 3000)
    assert entries(store) == []


def test_a_file_that_is_gone_is_an_error_of_the_store(store):
    with pytest.raises(FetchError, match="no longer in the store"):
        store.check("0" * 64, 1)


def test_a_pipe_is_not_waited_for(store, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FetchError, match="not a plain file"):
        store.add_file(tmp_path / "pipe")
