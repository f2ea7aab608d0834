"""transport/nccl: its calls, over a library of the same functions on host memory; and that the real one opens."""

import ctypes
import os
import subprocess
import sys
import threading
import zipfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pih_runtime.errors import WorkerError
from tests.support import simgpu
from tests.support.artifacts import artifact
from tests.support.program import ROOT

sys.path.insert(0, str(ROOT / "plugins/transport/nccl"))

from pih_transport_nccl import library, transport

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nccl")
    return simgpu.compiled(folder, "libnccl", [(HERE / "fake_nccl.cpp").read_text()])


@pytest.fixture
def made(compiled, tmp_path, monkeypatch):
    """A transport of two, each test over a library of its own: a copy is loaded anew."""
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(compiled.read_bytes())
    return transport.Transport(library.load(path), 2)


class End:
    """A rank, a stream that counts, and memory by address."""

    def __init__(self, made, rank):
        self.queued = ctypes.c_int()
        self.rank = made.join(rank, ctypes.addressof(self.queued))


@pytest.fixture
def ends(made):
    with ThreadPoolExecutor(2) as threads:
        yield list(threads.map(lambda rank: End(made, rank), range(2)))


def together(ends, action):
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(action, ends))


def address(values):
    return values.buffer_info()[0]


def test_every_operation_gives_what_the_contract_says(ends):
    def run(end):
        own = array("i", [1, 2, 3, 4]) if end.rank.rank == 0 else array("i", [10, 20, 30, 40])
        total, pair, half = array("i", [0] * 4), array("i", [0] * 8), array("i", [0] * 2)
        end.rank.all_reduce(address(own), address(total), 4, "i32")
        end.rank.all_gather(address(own), address(pair), 4, "i32")
        end.rank.reduce_scatter(address(own), address(half), 2, "i32")
        end.rank.barrier()
        end.rank.broadcast(address(own), 4, "i32", 1)
        floats = array("f", [0.5, end.rank.rank])
        end.rank.all_reduce(address(floats), address(floats), 2, "f32")
        return list(total), list(pair), list(half), list(own), list(floats), end.queued.value

    first, second = together(ends, run)
    assert first[:2] == second[:2] == ([11, 22, 33, 44], [1, 2, 3, 4, 10, 20, 30, 40])
    assert (first[2], second[2]) == ([11, 22], [33, 44])
    assert first[3:] == second[3:] == ([10, 20, 30, 40], [1.0, 1.0], 5)


def test_what_cannot_be_done_is_refused_before_anyone_waits(made, ends):
    one, memory = ends[0].rank, address(array("i", [0] * 4))
    for action, words in (
        (lambda: one.all_reduce(memory, memory, 1, "f12"), "no sum of 'f12'"),
        (lambda: one.all_reduce(memory, memory, 1, "u8"), "no sum of 'u8'"),
        (lambda: one.all_gather(memory, memory, 1, "f12"), "no collective of 'f12'"),
        (lambda: one.all_gather(memory, memory, -1, "f32"), "-1 values"),
        (lambda: one.broadcast(memory, 1, "f32", 2), "no rank 2 of 2"),
        (lambda: one.all_reduce(memoryview(b"abcd"), memory, 1, "f32"), "memory of the host"),
        (lambda: made.join(2), "no rank 2 of 2"),
        (lambda: made.join(0), "rank 0 has joined already"),
    ):
        with pytest.raises(WorkerError, match=words):
            action()


def test_an_abort_ends_who_waits_and_who_comes_later(made, ends):
    def run(end):
        values = array("f", [1.0])
        if end.rank.rank:
            made.abort("rank 1 ran out of memory")
            made.abort("another reason")
        with pytest.raises(WorkerError) as caught:
            end.rank.all_reduce(address(values), address(values), 1, "f32")
        return str(caught.value)

    assert all("rank 1 ran out of memory" in told for told in together(ends, run))
    with pytest.raises(WorkerError, match="ran out of memory"):
        ends[0].rank.barrier()
    made.stop()


def test_who_waits_to_join_is_told_that_the_transport_stopped(made):
    timer = threading.Timer(0.1, made.stop)
    timer.start()
    with pytest.raises(WorkerError, match="the transport has stopped"):
        made.join(0)
    timer.join()


def test_ranks_find_each_other_by_the_loopback_interface(made):
    assert made.library.version == "2.31.2"
    assert os.environ["NCCL_SOCKET_IFNAME"] == "lo"


def test_a_library_that_is_none_is_an_error(tmp_path):
    (tmp_path / "libnccl.so.2").write_bytes(b"no library")
    with pytest.raises(WorkerError, match="NCCL cannot be opened"):
        library.load(tmp_path / "libnccl.so.2")


def test_the_pinned_library_opens_and_is_of_the_pinned_version(tmp_path):
    """In a process of its own: torch may have loaded another one into this one."""
    with zipfile.ZipFile(artifact("wheel", "nvidia-nccl-cu13")) as archive:
        path = archive.extract("nvidia/nccl/lib/libnccl.so.2", tmp_path)
    text = f"from pathlib import Path; from pih_transport_nccl.library import load; print(load(Path({path!r})).version)"
    paths = os.pathsep.join(str(ROOT / part) for part in ("runtime", "plugins/transport/nccl"))
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, env={"PYTHONPATH": paths}
    )
    assert done.stdout.strip() == "2.31.2", done.stderr
