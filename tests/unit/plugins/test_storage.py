"""storage/safetensors: what the plan must find, and which bytes are taken."""

import gc
import json
import os
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pih_storage_safetensors import file as storage_file
from pih_storage_safetensors import start

from pih_runtime import digests
from pih_runtime.contracts import Context
from pih_runtime.errors import LockError, SealError, WorkerError
from pih_runtime.plan import Weight, to_json
from tests.integration.worker.toy_bundle import plan, weights_file
from tests.support.waiting import until
from tests.unit.plugins.safetensors_file import entry, file_of

WEIGHTS = (("first", 3000), ("second", 4097), ("third", 7000), ("last", 100))  # bytes; 64-byte steps in the file
CHUNK = digests.SMALLEST


def packed():
    """A file of several chunks with filler between its tensors, and the plan it is for."""
    header, data = {}, b""
    for index, (name, size) in enumerate(WEIGHTS):
        for one, length in ((name, size), (f"_pad.{index}", -size % 64)):
            header[one] = {"dtype": "U8", "shape": [length], "data_offsets": [len(data), len(data) + length]}
            data += bytes(at % 251 for at in range(length))
    text = json.dumps(header).encode()
    weights = tuple(Weight(name, (size,), "q8_0", "rows", size) for name, size in WEIGHTS)
    return file_of(text + b" " * (-(len(text) + 8) % 64), data), replace(plan(400), weights=weights)


FILE, PLAN = packed()
BASE = struct.unpack("<Q", FILE[:8])[0] + 8
MODES = [(delivery, verify) for delivery in ("embed", "separate") for verify in ("start", "first-use")]


class Bundle:
    """A bundle's /pih with these weights, as built; damage is done to its files afterwards."""

    def __init__(self, root, delivery="embed", verify="start", pinned=True, data=FILE, of=PLAN):
        self.root = root
        self.lines, self.failed = [], []
        (root / "weights").mkdir()
        self.path = root / "weights/weights.safetensors"
        self.path.write_bytes(data)
        self.table = root / ("weights.digests" if delivery == "embed" else "weights/weights.digests")
        text = digests.to_text(digests.table_of(memoryview(data), CHUNK))
        self.table.write_bytes(text)
        (root / "plan.json").write_text(to_json(of))
        pin = digests.root(text) if delivery == "separate" and pinned else ""
        self.lock = {"weights": {"delivery": delivery, "verify": verify, "digest": pin}}
        listed = [{"path": "/pih/weights.digests", "digest": digests.root(text)}] if delivery == "embed" else []
        (root / "bundle.json").write_text(json.dumps({"schema": 1, "name": "t", "lock": "", "files": listed}))

    def start(self):
        host = SimpleNamespace(threads=2)
        return start(
            Context(
                self.root,
                {},
                self.lock,
                "",
                {"platform.host": host}.__getitem__,
                self.lines.append,
                bool,
                self.failed.append,
            )
        )

    def use(self):
        """Start, and what a backend does before its first step."""
        weights = self.start()
        try:
            weights.check([name for name, _ in WEIGHTS])
            return {name: bytes(weights.unchecked(name)) for name, _ in WEIGHTS}
        finally:
            weights.stop()

    def refused(self, *words, kind=SealError):
        with pytest.raises(kind) as caught:
            self.use()
        assert all(word in str(caught.value) for word in words), str(caught.value)
        return caught.value


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize(("delivery", "verify"), MODES)
def test_the_right_weights_are_served(tmp_path, delivery, verify):
    bundle = Bundle(tmp_path, delivery, verify)
    expected = {name: bytes(at % 251 for at in range(size)) for name, size in WEIGHTS}
    assert bundle.use() == expected
    assert bundle.lines[0].startswith(f"weights {len(FILE)} bytes, checked")
    assert bundle.lines[1].startswith("weights: every chunk checked, in ")


def places():
    """A bit of every region of the file: header, each tensor's start, middle and end, filler."""
    yield "length", 3
    yield "header", 8 * 20
    yield "header's end", 8 * BASE - 1
    at = BASE
    for name, size in WEIGHTS:
        yield f"{name} start", 8 * at
        yield f"{name} middle", 8 * (at + size // 2) + 4
        yield f"{name} end", 8 * (at + size) - 1
        if size % 64:
            yield f"{name} filler", 8 * (at + size) + 5
        at += size + -size % 64
    assert at == len(FILE)
    yield "last bit", 8 * len(FILE) - 1


@pytest.mark.parametrize(("delivery", "verify"), MODES)
@pytest.mark.parametrize(("place", "bit"), list(places()))
def test_a_flipped_bit_is_refused_with_its_chunk(tmp_path, delivery, verify, place, bit):
    bundle = Bundle(tmp_path, delivery, verify)
    flip(bundle.path, bit)
    chunk = bit // 8 // CHUNK
    if place == "length":
        assert bundle.refused().exit_code == 8
        return
    end = min((chunk + 1) * CHUNK, len(FILE))
    told = bundle.refused(f"chunk {chunk} of the weights, bytes {chunk * CHUNK} to {end}", str(bundle.path), "to fix: ")
    assert told.exit_code == 8
    if place.endswith("middle"):
        assert "tensor '" in str(told) or chunk == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_no_flipped_bit_of_weights_or_table_is_accepted(tmp_path_factory, data):
    delivery, verify = data.draw(st.sampled_from(MODES))
    bundle = Bundle(tmp_path_factory.mktemp("b"), delivery, verify)
    path = data.draw(st.sampled_from([bundle.path, bundle.table]))
    flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    assert bundle.refused().exit_code == 8


@pytest.mark.parametrize(("delivery", "verify"), MODES)
def test_a_shorter_or_longer_file_is_refused(tmp_path, delivery, verify):
    bundle = Bundle(tmp_path, delivery, verify)
    for data in (FILE[:-1], FILE[:-CHUNK], FILE + b"\0", FILE + FILE):
        bundle.path.write_bytes(data)
        bundle.refused(f"the weights have {len(data)} bytes, their digests are of {len(FILE)}")


@pytest.mark.parametrize(("delivery", "verify"), MODES)
def test_the_table_of_another_model_is_refused(tmp_path, delivery, verify):
    bundle = Bundle(tmp_path, delivery, verify)
    other = FILE[:-1] + b"\0"
    bundle.table.write_bytes(digests.to_text(digests.table_of(memoryview(other), CHUNK)))
    bundle.path.write_bytes(other)
    bundle.refused("the digests of the weights are sha256:", "expected are sha256:")


@pytest.mark.parametrize(("delivery", "verify"), MODES)
def test_a_missing_table_is_no_way_round_it(tmp_path, delivery, verify):
    bundle = Bundle(tmp_path, delivery, verify)
    bundle.table.unlink()
    bundle.refused("cannot read the digests of the weights")


def test_an_image_that_lists_no_table_is_refused(tmp_path):
    bundle = Bundle(tmp_path)
    (tmp_path / "bundle.json").write_text('{"schema": 1, "name": "t", "lock": "", "files": []}')
    bundle.refused("does not list the digests of the weights")


def test_a_table_with_no_pin_whose_counts_overflow_is_refused(tmp_path):
    bundle = Bundle(tmp_path, "separate", pinned=False)
    bundle.table.write_bytes(b"pih-weights-digests 1\nsize 9223372036854775807\nchunk 4096\n")
    bundle.refused("no digests of weights: 9223372036854775807 bytes are 2251799813685248 chunks")
    with bundle.table.open("wb") as file:
        file.truncate(digests.MOST + 1)
    bundle.refused("are no digests of weights")


def test_weights_that_nobody_pins_are_taken_and_never_in_silence(tmp_path):
    bundle = Bundle(tmp_path, "separate", pinned=False)
    bundle.use()
    assert "are not pinned: checked now against the digests beside them alone" in bundle.lines[0]
    flip(bundle.path, 8 * len(FILE) - 1)
    bundle.refused("chunk 3 of the weights")
    bundle.table.unlink()
    bundle.lines.clear()
    bundle.use()
    assert "are not pinned, and no digests lie beside them" in bundle.lines[0]


def test_at_first_use_nothing_but_the_header_is_read_at_start_and_each_chunk_once(tmp_path):
    bundle = Bundle(tmp_path, verify="first-use")
    weights = bundle.start()
    assert weights.chunks.left == 3
    assert not [line for line in bundle.lines if "every chunk" in line]
    assert bytes(weights.tensor("second")[:3]) == b"\0\1\2"
    assert 0 < weights.chunks.left < 3
    weights.check([name for name, _ in WEIGHTS])
    assert weights.chunks.left == 0
    assert bundle.lines[-1].startswith("weights: every chunk checked")
    flip(bundle.path, 8 * len(FILE) - 1)  # what was checked is not read again
    weights.check([name for name, _ in WEIGHTS])
    weights.stop()
    weights.stop()


def test_at_first_use_a_tensor_whose_chunks_are_right_is_served_while_another_is_not(tmp_path):
    bundle = Bundle(tmp_path, verify="first-use")
    flip(bundle.path, 8 * len(FILE) - 1)
    weights = bundle.start()
    weights.tensor("first")
    for _ in range(2):
        with pytest.raises(SealError, match="tensor 'last': chunk 3"):
            weights.tensor("last")
    weights.stop()


def test_many_threads_that_ask_at_once_are_all_told(tmp_path):
    bundle = Bundle(tmp_path, verify="first-use")
    flip(bundle.path, 8 * len(FILE) - 1)
    weights, told = bundle.start(), []

    def ask():
        try:
            weights.tensor("last")
        except SealError as problem:
            told.append(str(problem))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    weights.stop()
    assert len(told) == 8
    assert len(set(told)) == 1


@pytest.mark.parametrize("change", ["written", "longer", "touched"])
def test_a_file_that_changes_while_it_is_mapped_ends_the_worker(tmp_path, monkeypatch, change):
    monkeypatch.setattr(storage_file, "INTERVAL", 0.01)
    bundle = Bundle(tmp_path)
    weights = bundle.start()
    time.sleep(0.05)
    assert bundle.failed == []
    if change == "touched":
        os.utime(bundle.path, ns=(0, 0))
    else:
        with bundle.path.open("r+b") as file:
            file.seek(0, os.SEEK_END if change == "longer" else os.SEEK_SET)
            file.write(b"x")
    until(lambda: bundle.failed)
    weights.stop()
    (problem,) = bundle.failed
    assert (problem.exit_code, "were changed while they are in use" in str(problem)) == (8, True)


def test_another_file_under_the_same_name_does_not_reach_the_map(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_file, "INTERVAL", 0.01)
    bundle = Bundle(tmp_path)
    weights = bundle.start()
    (tmp_path / "new").write_bytes(FILE[:-1] + b"x")
    (tmp_path / "new").replace(bundle.path)
    time.sleep(0.05)
    assert bytes(weights.tensor("last")) == bytes(range(100))
    weights.stop()
    assert bundle.failed == []


def test_a_change_during_the_first_check_is_seen_by_it(tmp_path):
    bundle = Bundle(tmp_path, verify="first-use")
    weights = bundle.start()
    os.utime(bundle.path, ns=(0, 0))
    with pytest.raises(SealError, match="were changed"):
        weights.check(["first", "second", "third"])
    weights.stop()


def test_a_failed_start_keeps_nothing_open(tmp_path):
    bundle = Bundle(tmp_path)
    flip(bundle.path, 8 * len(FILE) - 1)
    running = set(threading.enumerate())
    gc.collect()  # what other tests left open
    before = len(list(Path("/proc/self/fd").iterdir()))
    bundle.refused("chunk 3")
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert set(threading.enumerate()) <= running


def test_an_unknown_moment_to_verify_is_refused(tmp_path):
    bundle = Bundle(tmp_path, verify="never")
    assert bundle.refused("cannot be verified at 'never'", kind=LockError).exit_code == 5


def test_a_tensor_is_a_view_of_the_map_writable_in_private(tmp_path):
    bundle = Bundle(tmp_path)
    weights = bundle.start()
    view = weights.tensor("last")
    assert bytes(view) == bytes(range(100))
    view[0] = 9  # a backend takes its address from a writable buffer; the file stays as it is
    assert bundle.path.read_bytes() == FILE
    for ask in (weights.tensor, weights.unchecked):
        with pytest.raises(WorkerError, match="no tensor 'other'"):
            ask("other")
    weights.stop()


TOY = plan(400)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (weights_file("other"), "the plan needs tensor 'toy'"),
        (weights_file(data=bytes(128)), "128 bytes, the plan says 256"),
        (file_of({"toy": entry(shape=(64,), end=256), "more": entry(start=256, end=264)}, bytes(264)), "does not use"),
        (b"12345678", "not a safetensors file"),
    ],
)
@pytest.mark.parametrize("pinned", [True, False])
def test_weights_delivered_apart_must_be_those_of_the_plan(tmp_path, data, words, pinned):
    Bundle(tmp_path, "separate", pinned=pinned, data=data, of=TOY).refused(words)


@pytest.mark.parametrize("data", [b"", None])
def test_missing_weights_delivered_apart_name_the_mount(tmp_path, data):
    bundle = Bundle(tmp_path, "separate")
    bundle.path.unlink() if data is None else bundle.path.write_bytes(data)
    bundle.refused("cannot map the weights", "mount the weights at /pih/weights", kind=WorkerError)
