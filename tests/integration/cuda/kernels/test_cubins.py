"""What the shipped profiles' cubins cost a device: registers, shared memory, code; nothing spills; nothing is idle."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from pih_runtime.ops import COLLECTIVES
from pih_runtime.plan import Limits
from pih_steps import cubin_elf
from pih_steps.lower import plan_sha256
from pih_steps.lower.quantized import stored_as
from tests.integration.cuda.kernels import shipped
from tests.support import simgpu
from tests.truth import models

LOCKS = shipped.locks()
REGISTERS, STATIC_SHARED = 65536, 48 << 10  # of an SM, of a block: both compute capabilities alike
MOST_CODE = 1_000_000


@pytest.fixture(scope="module", params=LOCKS)
def profile(request):
    return request.param


@pytest.fixture(scope="module")
def cubin(profile, folder):
    return shipped.cubin_of(LOCKS[profile], folder)


@pytest.fixture(scope="module")
def entries(cubin):
    found = cubin_elf.read(cubin, "pack.cubin").entries
    assert found
    return found


def test_there_are_profiles_for_both_devices():
    assert {lock["target"]["device"]["sm"] for lock in LOCKS.values()} == {"sm_89", "sm_90"}


def test_it_is_for_the_profiles_device(profile, cubin):
    assert cubin_elf.read(cubin, "pack.cubin").sm == LOCKS[profile]["target"]["device"]["sm"]


def test_nothing_spills(entries):
    assert [entry.name for entry in entries if entry.frame] == []


@pytest.mark.parametrize("sm", ["sm_89", "sm_90"])
def test_a_kernel_that_spills_is_seen(sm, folder, tmp_path):
    """One that keeps 320 numbers where a thread has 255 registers at most."""
    sources = shutil.copytree(simgpu.SOURCES, tmp_path / "cuda")
    shutil.copy(Path(__file__).with_name("spilling.cuh"), sources)
    toy = {"template": "toy_held", "source": "spilling.cuh"}
    some = [{**toy, "constants": {"count": count}, "symbol": f"toy_held_count{count}"} for count in (32, 320)]
    made = simgpu.cubin_pack(folder, some, sm, sources)
    few, many = cubin_elf.read((made / "pack.cubin").read_bytes(), "pack.cubin").entries
    assert (few.name, few.frame) == ("toy_held_count32", 0)
    assert many.name == "toy_held_count320"
    assert many.frame >= (320 - 255) * 4
    with pytest.raises(AssertionError):
        test_nothing_spills([few, many])


@pytest.mark.parametrize("sm", ["sm_89", "sm_90"])
def test_kernels_for_int8_weights_keep_to_the_same_bounds(sm, folder):
    checkpoint, graph = stored_as("int8", models.qwen3_checkpoint({})), models.graph_of("qwen3")
    lowered = models.lowered_for("kernels/cuda", checkpoint, graph, Limits(512, 8, 4096), "bf16", sm)
    made = simgpu.cubin_pack(folder, [asdict(binding) for binding in lowered.bindings], sm)
    found = cubin_elf.read((made / "pack.cubin").read_bytes(), "pack.cubin").entries
    assert sum("int8" in entry.name for entry in found) == 16
    test_nothing_spills(found)
    test_registers_of_a_block_are_within_an_sm(found)
    test_shared_memory_needs_no_permission(found)


def test_registers_of_a_block_are_within_an_sm(entries):
    for entry in entries:
        threads = entry.launch[1]
        # registers are given out to warps by 256
        assert entry.registers > 0
        assert -(-entry.registers * 32 // 256) * 256 * (threads // 32) <= REGISTERS, entry


def test_shared_memory_needs_no_permission(entries):
    assert [entry.name for entry in entries if entry.shared > STATIC_SHARED] == []


def test_device_code_is_small(cubin):
    assert len(cubin) < MOST_CODE


def test_entries_are_those_that_the_plan_calls(profile, entries):
    lock = LOCKS[profile]
    limits = Limits(lock["limits"]["tokens"], lock["limits"]["batch"], lock["limits"]["context"])
    checkpoint, graph = models.qwen3_checkpoint({}), models.graph_of("qwen3")
    device = lock["target"]["device"]
    plan = models.lowered_for("kernels/cuda", checkpoint, graph, limits, "bf16", device["sm"], device["count"]).plan
    assert plan_sha256(plan) == lock["plan"]["sha256"]
    called = {call.symbol for call in plan.calls if call.op not in COLLECTIVES}
    owners = {entry.name: [s for s in called if f"{entry.name}_".startswith(f"{s}_")] for entry in entries}
    assert [name for name, found in owners.items() if not found] == []
    assert called == {symbol for found in owners.values() for symbol in found}


def test_it_is_the_cubin_on_record(profile, cubin):
    on_record = json.loads(shipped.RECORD.read_text())
    assert set(on_record) == set(LOCKS)
    renew = "if this is meant: python -m tests.integration.cuda.kernels.shipped"
    assert shipped.facts(cubin) == on_record[profile], renew
