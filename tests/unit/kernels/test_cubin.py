"""The CUDA pack's generated source and its table of launches: only what is bound, all of it, in an order of its own."""

from __future__ import annotations

import itertools
import json
import zipfile

import pytest

from pih_runtime.errors import BuildError
from pih_steps import cubin
from pih_steps.spec import Spec
from tests.unit.steps.cubin_file import cubin as file_of

BINDINGS = [
    {"symbol": "b_n1", "template": "b", "source": "b.cuh", "constants": {"n": 1}},
    {"symbol": "a_n2_k3", "template": "a", "source": "b.cuh", "constants": {"n": 2, "k": 3}},
    {"symbol": "c_e3212836864", "template": "c", "source": "a.cuh", "constants": {"e": 0xBF800000}},
]
ANY = 2**31 - 1


def entry(name, most_rows=ANY):
    return name, 32, 0, 0, (most_rows, 256, 1, 0, 1, 1, 0)


def test_each_source_once_each_symbol_once_sorted():
    assert cubin.source(BINDINGS).splitlines() == [
        '#include "a.cuh"',
        '#include "b.cuh"',
        "PIH_ENTRIES_a(a_n2_k3, 2, 3)",
        "PIH_ENTRIES_b(b_n1, 1)",
        "PIH_ENTRIES_c(c_e3212836864, 3212836864u)",
    ]


def test_order_and_repetition_of_bindings_do_not_matter():
    assert len({cubin.source([*some, some[0]]) for some in itertools.permutations(BINDINGS)}) == 1


def test_symbol_that_does_not_spell_its_constants_is_refused():
    with pytest.raises(BuildError, match="'a_n2' does not spell its constants"):
        cubin.source([{**BINDINGS[1], "symbol": "a_n2"}])


def test_entries_of_a_symbol_are_tried_from_the_fewest_rows_up():
    made = file_of(entry("b_n1_wide"), entry("b_n1", 8), entry("b_n1_to32", 32), entry("a_n2_k3"))
    table = json.loads(cubin.table(made, "sm_89", 13000, BINDINGS[:2]))
    assert (table["abi"], table["sm"], table["cuda"]) == (1, "sm_89", 13000)
    assert [item["entry"] for item in table["symbols"]["b_n1"]] == ["b_n1", "b_n1_to32", "b_n1_wide"]
    assert table["symbols"]["a_n2_k3"] == [
        {
            "entry": "a_n2_k3", "most_rows": ANY, "threads": 256, "rows_per_block": 1, "blocks_per_seq": 0, "y": 1,
            "z": 1, "scratch": 0,
        }
    ]  # fmt: skip


def test_an_entry_belongs_to_the_longest_symbol_that_begins_it():
    two = [BINDINGS[0], {"symbol": "b_n1_k2", "template": "b", "source": "b.cuh", "constants": {"n": 1, "k": 2}}]
    made = file_of(entry("b_n1"), entry("b_n1_k2"), entry("b_n1_k2_wide"))
    symbols = json.loads(cubin.table(made, "sm_89", 13000, two))["symbols"]
    assert {name: len(items) for name, items in symbols.items()} == {"b_n1": 1, "b_n1_k2": 2}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (file_of(entry("b_n1"), sm=90), "a cubin for sm_90, not sm_89"),
        (file_of(entry("b_n1"), entry("b_n12")), "b_n12 belongs to no binding"),
        (file_of(entry("b_n1"), ("b_n1_wide", 32, 0, 0, None)), "b_n1_wide belongs to no binding, or does not say how"),
        (file_of(), "the pack's sources make no entry for b_n1"),
        (b"junk", "pack.cubin: not a cubin"),
    ],
    ids=["another device", "unbound", "no launch", "missing", "junk"],
)
def test_a_cubin_that_is_not_what_was_bound_is_refused(made, words):
    with pytest.raises(BuildError, match=words):
        cubin.table(made, "sm_89", 13000, BINDINGS[:1])


@pytest.mark.parametrize(
    ("launch", "shared", "words"),
    [
        ((ANY, 1025, 1, 0, 1, 1, 0), 0, "threads 1025, a device takes 1 to 1024"),
        ((ANY, 256, 1, 0, 65536, 1, 0), 0, "y 65536, a device takes 1 to 65535"),
        ((ANY, 256, 1, 0, 1, 65536, 0), 0, "z 65536, a device takes 1 to 65535"),
        ((ANY, 256, 1, 0, 0, 1, 0), 0, "y 0, a device takes 1 to 65535"),
        ((ANY, 256, 0, 0, 1, 1, 0), 0, "rows_per_block 0, a device takes 1 to 65535"),
        ((ANY, 256, 1, 0, 1, 1, 0), (48 << 10) + 1, "shared 49153, a device takes 0 to 49152"),
    ],
)
def test_a_launch_that_no_device_takes_is_refused(launch, shared, words):
    with pytest.raises(BuildError, match=f"kernel entry b_n1 asks for {words}"):
        cubin.table(file_of(("b_n1", 32, shared, 0, launch)), "sm_89", 13000, BINDINGS[:1])


def test_the_largest_launch_is_taken():
    made = file_of(("b_n1", 32, 48 << 10, 0, (ANY, 1024, 1, 0, 65535, 65535, 0)))
    assert json.loads(cubin.table(made, "sm_89", 13000, BINDINGS[:1]))["symbols"]["b_n1"]


@pytest.mark.parametrize("isa", ["x86-64-v3", "sm_", "sm_89; rm", "sm_8"])
def test_what_is_no_compute_capability_is_refused(tmp_path, isa):
    with pytest.raises(BuildError, match="is no compute capability"):
        cubin.run(Spec({"isa": isa, "bindings": BINDINGS}, {}, {}, {}, (), tmp_path / "pack"))


@pytest.mark.parametrize("names", [None, [], ["nvidia/cu13/lib/libnvrtc.so.13"], ["a/libnvrtc.so.13"] * 2])
def test_what_is_no_wheel_of_nvrtc_is_refused_and_leaves_nothing(tmp_path, names):
    wheel = tmp_path / "nvrtc.whl"
    if names is None:
        wheel.write_bytes(b"not a zip")
    else:
        with zipfile.ZipFile(wheel, "w") as archive:
            for index, name in enumerate(names):
                archive.writestr(f"{index}{name}" if index else name, b"")
    spec = Spec({"isa": "sm_89", "bindings": BINDINGS}, {"nvidia-cuda-nvrtc": wheel}, {}, {}, (), tmp_path / "pack")
    with pytest.raises(BuildError, match="not a wheel of NVRTC"):
        cubin.run(spec)
    assert not (tmp_path / "pack").exists()
