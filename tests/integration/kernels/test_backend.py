"""backend/cpu runs a whole small decoder: same tokens however the text is cut, clear errors, a clean end."""

from __future__ import annotations

import sys
import threading
from array import array
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pih_runtime.errors import SealError, WorkerError
from pih_runtime.plan import Limits, to_json
from pih_runtime.step import Sampling, Step
from tests.integration.kernels.formats import aligned, bf16_round
from tests.integration.kernels.packs import ROOT, pack_module
from tests.support.waiting import PATIENCE

sys.path.insert(0, str(ROOT / "benchmarks"))
import pih_backend_cpu
import synthetic_decoder
from pih_backend_cpu import backend as backend_module
from pih_backend_cpu.backend import CpuBackend

LIMITS = Limits(tokens=40, seqs=4, context=64)
SHAPES = {
    "bf16": synthetic_decoder.Shape(2, 64, 4, 2, 32, 96, 320, "bf16", "bf16", True, 0),
    "q4_1": synthetic_decoder.Shape(2, 64, 4, 2, 32, 96, 320, "q4_1", "q8_0", False, 1),
}
PAGES = LIMITS.context // synthetic_decoder.PAGE


class Weights:
    """Random tensors of the plan's sizes; float16 scales kept small."""

    def __init__(self, plan):
        rng = np.random.default_rng(4)
        self.checked, self.damaged = [], False
        self.tensors = {one.name: memoryview(aligned(self._bytes(rng, one))) for one in plan.weights}

    def _bytes(self, rng, weight):
        if weight.format == "f32":
            return (1 + 0.1 * rng.standard_normal(weight.nbytes // 4)).astype(np.float32).view(np.uint8)
        if weight.format == "bf16":
            return bf16_round(rng.standard_normal(weight.nbytes // 2) * 0.1).view(np.uint8)
        size = 320 if weight.format == "q4_1" else 544
        blocks = rng.integers(0, 256, (weight.nbytes // size, size), dtype=np.uint8)
        blocks[:, :32] = np.full(16, 0.01, np.float16).view(np.uint8)
        if weight.format == "q4_1":
            blocks[:, 32:64] = np.full(16, -0.08, np.float16).view(np.uint8)
        return blocks.ravel()

    def unchecked(self, name):
        return self.tensors[name]

    def check(self, names):
        self.checked += [sorted(names)]
        if self.damaged:
            raise SealError("tensor: chunk 3 is not the one")


def batch(*parts, draw=None):
    """parts: (slot, first position, ids); each part's last token is wanted. Slot s has the pages s, s+4, s+8, ..."""
    ids, positions, starts, table, slots, rows, row_slots = (array("i") for _ in range(7))
    starts.append(0)
    for slot, start, some in parts:
        pages = [slot + LIMITS.seqs * index for index in range(PAGES)]
        for offset, token in enumerate(some):
            position = start + offset
            ids.append(token)
            positions.append(position)
            slots.append(pages[position // 16] * 16 + position % 16)
        starts.append(len(ids))
        table.extend(pages)
        rows.append(len(ids) - 1)
        row_slots.append(slot)
    return Step(ids, positions, starts, table, PAGES, slots, rows, row_slots, (draw or Sampling(),) * len(parts))


@pytest.fixture(params=SHAPES)
def parts_of(request, isa, build):
    """plan, pack and weights of one small decoder."""
    plan, bindings = synthetic_decoder.synthetic(SHAPES[request.param], LIMITS)
    return plan, pack_module.load_pack(build(isa, bindings)), Weights(plan)


@pytest.fixture
def start(parts_of):
    running = []

    def make(threads=2):
        running.append(CpuBackend(*parts_of, threads))
        return running[-1]

    yield make
    for one in running:
        one.stop()


def run(backend, *parts, draw=None):
    return backend.wait(backend.submit(batch(*parts, draw=draw)))


PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84]


def logits(backend):
    return [np.array(row) for row in backend.logits()]


def test_prompt_whole_in_chunks_token_by_token_and_in_company_gives_the_same_bits(start):
    backend = start()
    whole_ids = run(backend, (0, 0, PROMPT))
    (whole,) = logits(backend)
    assert np.isfinite(whole).all()
    assert whole_ids == [int(whole.argmax())]
    for sizes in ([7, 12], [16, 3], [1] * len(PROMPT)):
        at = 0
        for size in sizes:
            found = run(backend, (1, at, PROMPT[at : at + size]))
            at += size
        assert found == whole_ids
        assert np.array_equal(logits(backend)[0], whole)
    run(backend, (3, 0, PROMPT[:5]))
    found = run(backend, (3, 5, [9]), (2, 0, PROMPT), (0, 19, [1, 2, 3]))
    assert np.array_equal(logits(backend)[1], whole)
    assert found[1:2] == whole_ids
    assert np.array_equal(self_check(start(1)), whole)


def self_check(single):
    run(single, (2, 0, PROMPT))
    return logits(single)[0]


def test_an_id_last_sampled_in_a_slot_feeds_the_next_step(start):
    backend = start()
    first = backend.submit(batch((2, 0, PROMPT)))
    second = backend.submit(batch((2, len(PROMPT), [-3])))
    (token,) = backend.wait(first)
    follower = backend.wait(second)
    assert run(backend, (1, 0, PROMPT)) == [token]
    assert run(backend, (1, len(PROMPT), [token])) == follower


def test_at_most_two_steps_are_in_flight(start):
    backend = start()
    gate = threading.Event()
    backend._pack = replace(backend._pack, run=lambda *_: gate.wait(PATIENCE))
    tickets = [backend.submit(batch((0, 0, PROMPT))) for _ in range(2)]
    with pytest.raises(WorkerError, match="2 steps are in flight"):
        backend.submit(batch((0, 0, PROMPT)))
    gate.set()
    for ticket in tickets:
        backend.wait(ticket)
    backend.wait(backend.submit(batch((0, 0, PROMPT))))


def test_a_bad_step_is_refused_and_the_next_one_runs(start):
    backend = start()
    with pytest.raises(WorkerError, match="ids must lie in"):
        backend.submit(batch((0, 0, [320])))
    with pytest.raises(WorkerError, match="nothing was sampled"):
        backend.submit(batch((0, 0, [-1])))
    assert len(run(backend, (0, 0, [319]))) == 1


def test_seeded_draws_repeat_and_differ_by_seed(start):
    backend = start()
    draws = {
        seed: [run(backend, (0, 0, PROMPT), draw=Sampling(temperature=50.0, seed=seed)) for _ in range(2)]
        for seed in range(8)
    }
    assert all(first == second for first, second in draws.values())
    assert len({first[0] for first, _ in draws.values()}) > 1


def test_a_failure_inside_a_step_reaches_who_waits(start):
    backend = start()

    def broken(*_):
        raise OSError("gone")

    whole = backend._pack
    backend._pack = replace(whole, run=broken)
    ticket = backend.submit(batch((0, 0, PROMPT)))
    with pytest.raises(WorkerError, match=r"the step failed: OSError: gone \(test_backend.py:\d+\)"):
        backend.wait(ticket)
    backend._pack = whole
    assert len(run(backend, (0, 0, PROMPT))) == 1
    for used in (ticket, object()):
        with pytest.raises(WorkerError, match="not a ticket"):
            backend.wait(used)


def test_stop_ends_threads_and_refuses_steps(parts_of):
    others = set(threading.enumerate())
    backend = CpuBackend(*parts_of, 3)
    assert len(set(threading.enumerate()) - others) == 3
    run(backend, (0, 0, PROMPT))
    assert backend.logits()
    backend.stop()
    backend.stop()
    assert backend.logits() == []
    assert not set(threading.enumerate()) - others
    with pytest.raises(WorkerError, match="has stopped"):
        backend.submit(batch((0, 0, PROMPT)))


def test_every_weight_is_checked_once_before_the_first_step_and_never_again(start, parts_of):
    plan, _, weights = parts_of
    backend = start()
    assert weights.checked == []
    for position in range(3):
        run(backend, (0, position, PROMPT[position : position + 1]))
    assert weights.checked == [sorted(weight.name for weight in plan.weights)]


def test_nothing_is_computed_with_weights_that_are_not_the_sealed_ones(parts_of):
    plan, pack, weights = parts_of
    weights.damaged = True
    ran = []
    backend = CpuBackend(plan, replace(pack, run=lambda *arguments: ran.append(arguments)), weights, 2)
    try:
        tickets = [backend.submit(batch((slot, 0, PROMPT))) for slot in range(2)]
        for ticket in tickets:
            with pytest.raises(SealError, match="chunk 3 is not the one"):
                backend.wait(ticket)
    finally:
        backend.stop()
    assert ran == []


def test_takes_exactly_the_memory_of_the_plan_and_gives_it_back(parts_of, monkeypatch):
    taken, given = {}, []
    real = backend_module.allocate

    def allocate(nbytes, purpose):
        taken[purpose] = nbytes
        return real(nbytes, purpose)

    monkeypatch.setattr(backend_module, "allocate", allocate)
    monkeypatch.setattr(backend_module, "release", given.append)
    plan = parts_of[0]
    CpuBackend(*parts_of, 2).stop()
    assert taken["activations"] == plan.arena_bytes
    assert taken["cache kv"] == plan.caches[0].nbytes
    assert taken["sampling scratch"] == 2 * 2 * 4 * plan.vocab
    assert len(given) == len(taken)


def test_start_that_fails_gives_its_memory_back(parts_of, monkeypatch):
    plan, pack, weights = parts_of
    given = []
    monkeypatch.setattr(backend_module, "release", given.append)
    broken = replace(plan, calls=(replace(plan.calls[0], symbol="no_such_kernel"), *plan.calls[1:]))
    with pytest.raises(WorkerError, match="no 'no_such_kernel'"):
        CpuBackend(broken, pack, weights, 2)
    assert len(given) == 4
    name = plan.weights[0].name
    whole = weights.tensors[name]
    weights.tensors[name] = whole[:-1]
    with pytest.raises(WorkerError, match="the plan says"):
        CpuBackend(plan, pack, weights, 2)
    weights.tensors[name] = memoryview(bytearray(len(whole) + 64))[1 : len(whole) + 1]
    with pytest.raises(WorkerError, match="does not start on 64 bytes"):
        CpuBackend(plan, pack, weights, 2)
    assert len(given) == 12


def test_memory_that_the_host_refuses_is_an_error():
    with pytest.raises(WorkerError, match="no memory for cache kv"):
        backend_module.allocate(1 << 60, "cache kv")


def context(root, plan, weights, isa, lock_isa=None, host=None):
    providers = {
        "platform.host": host or SimpleNamespace(threads=2, isa=frozenset({"x86-64-v3", "x86-64-v4-bf16-vnni"})),
        "storage.weights": weights,
    }
    return SimpleNamespace(
        root=root, lock={"target": {"isa": lock_isa or isa}}, provider=providers.__getitem__, log=lambda _line: None
    )


@pytest.fixture
def root(tmp_path, parts_of):
    plan, pack, _ = parts_of
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "pack.so").symlink_to(pack.where)
    (tmp_path / "plan.json").write_text(to_json(plan))
    return tmp_path


def test_start_reads_plan_and_pack_from_the_bundle(root, parts_of, isa):
    plan, _, weights = parts_of
    backend = pih_backend_cpu.start(context(root, plan, weights, isa))
    try:
        assert backend.plan == plan
        assert len(run(backend, (0, 0, PROMPT))) == 1
    finally:
        backend.stop()


def test_start_refuses_what_does_not_fit(root, parts_of, isa):
    plan, _, weights = parts_of
    other = next(one for one in pack_isas() if one != isa)
    with pytest.raises(WorkerError, match=f"the kernel pack is for {isa}, the lock says {other}"):
        pih_backend_cpu.start(context(root, plan, weights, isa, lock_isa=other))
    bare = SimpleNamespace(threads=2, isa=frozenset())
    with pytest.raises(WorkerError, match=f"this CPU lacks {isa}"):
        pih_backend_cpu.start(context(root, plan, weights, isa, host=bare))
    (root / "plan.json").unlink()
    with pytest.raises(WorkerError, match="cannot read the plan"):
        pih_backend_cpu.start(context(root, plan, weights, isa))


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF", b"#!/bin/sh\n"])
def test_start_refuses_a_file_that_is_no_pack(root, parts_of, isa, content):
    plan, _, weights = parts_of
    path = root / "kernels" / "pack.so"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WorkerError, match="not a kernel pack"):
        pih_backend_cpu.start(context(root, plan, weights, isa))


def pack_isas():
    from pih_steps.kernels import CPU_OF_ISA

    return sorted(CPU_OF_ISA)
