"""What the CUDA sources cannot be compiled or launched for, the pack's report refuses at lock time, with words."""

from __future__ import annotations

import json
import re

import pytest

from pih_runtime.plan import Limits
from pih_steps.lower import Builder, NoKernelError, bounds, read_report
from pih_steps.lower.pick import misfit
from tests.integration.cuda.kernels import made as written
from tests.integration.cuda.kernels.made import binding, symbol
from tests.support import simgpu
from tests.support.program import ROOT
from tests.truth import models

WRITTEN = written.REPORT
REPORT = read_report(ROOT / "plugins/kernels/cuda", "sm_89")
KERNELS = {kernel.template: kernel for kernel in [*REPORT.kernels, *REPORT.fused]}
EPS, MANY = 897988541, bounds.MOST_INT
LINEAR, EMBED = ("linear_bf16", "linear_int8"), ("embed_bf16", "embed_int8")
ATTENTION, WRITE = ("attention", "attention_bf16"), ("rope_kv_write", "norm_rope_kv_write")


def shape(template, **figures):
    """A template, and figures of a call; those that are left out are small and fit."""
    usual = {
        "n": 16, "k": 32, "columns": 64, "groups": 1, "head_dim": 32, "pairs": 0, "accumulate": 0, "heads": 2,
        "kv_heads": 1, "positions": 256, "seqs": 1, "scale_bits": EPS, "eps_bits": EPS, "v": 64,
    }  # fmt: skip
    names = [name.rpartition(".")[2] for name in KERNELS[template].constants]
    return template, {**{name: usual[name] for name in names}, **figures}


def each(templates, **figures):
    return [shape(template, **figures) for template in templates]


# Every static_assert of the sources, with shapes just beyond it.
ASSERTED = {
    "add.cuh: COLUMNS % 2 == 0": [shape("add", columns=3)],
    "attention.cuh: HEADS % KV_HEADS == 0 && HEADS / KV_HEADS <= 16 && D % 32 == 0 && D <= 128": [
        *each(ATTENTION, heads=34, kv_heads=2), *each(ATTENTION, head_dim=48), *each(ATTENTION, head_dim=160),
    ],
    "attention.cuh: POSITIONS % CHUNK == 0 && SCRATCH <= HEADS * POSITIONS * SEQS": each(
        ATTENTION, heads=16, kv_heads=1, positions=131072, seqs=1024
    ),
    "kv_write.cuh: D % 16 == 0": [shape("kv_write", head_dim=24)],
    "linear.cuh: N % 16 == 0 && K % 32 == 0": [*each(LINEAR, n=24), *each(LINEAR, k=48)],
    "rms_norm.cuh: COLUMNS % 2 == 0": each(("rms_norm_bf16", "gather_rms_norm_bf16"), columns=65),
    "rope.cuh: D % 2 == 0": [shape("rope", columns=66, head_dim=33), *each(WRITE, columns=99, head_dim=33)],
    "rows.cuh: COLUMNS % 2 == 0": each(("gather", "quantize_bf16"), columns=3),
    "silu_mul.cuh: COLUMNS % 2 == 0": each(("silu_mul", "silu_mul_bf16"), columns=3),
}  # fmt: skip
# Shapes whose launch has 65536 blocks in y or z, and the largest before each.
TOO_WIDE = [
    *each(LINEAR, n=65536 * 16), shape("rms_norm", columns=65535 * 16 + 2, groups=65535 * 8 + 1),
    *each(("add", "silu_mul", "silu_mul_bf16"), columns=65535 * 512 + 2), shape("rope_table", columns=65535 * 128 + 2),
    shape("rope", columns=65536 * 8, head_dim=2), *each(ATTENTION, heads=65536, kv_heads=65536),
    *each(ATTENTION, positions=65536 * 256),
]  # fmt: skip
WIDEST = [
    *each(LINEAR, n=65535 * 16), shape("rms_norm", columns=65535 * 16, groups=65535 * 8),
    *each(("add", "silu_mul", "silu_mul_bf16"), columns=65535 * 512), shape("rope_table", columns=65535 * 128),
    shape("rope", columns=65535 * 8, head_dim=2), *each(ATTENTION, heads=65535, kv_heads=65535),
    *each(ATTENTION, positions=65535 * 256),
]  # fmt: skip
# What an index counts in 31 bits: just beyond, which compiles all the same.
TOO_FAR = [
    *each(("embed_bf16", "linear_bf16"), k=(1 << 26) + 32), *each(("embed_int8", "linear_int8"), k=(1 << 27) + 32),
    *each(("kv_write", *WRITE), kv_heads=(1 << 20) + 1, head_dim=128, columns=2 * ((1 << 20) + 1) * 128),
]  # fmt: skip
AS_LARGE = [
    *each(("embed_bf16", "linear_bf16"), k=1 << 26), *each(("embed_int8", "linear_int8"), k=1 << 27),
    *each(ATTENTION, head_dim=128), *each(ATTENTION, heads=16), *each(ATTENTION, heads=1, positions=131072, seqs=16383),
    *each(("kv_write", *WRITE), kv_heads=1 << 20, head_dim=128, columns=(2 << 20) * 128),
]  # fmt: skip
BEYOND = [*(item for items in ASSERTED.values() for item in items), *TOO_WIDE]


def named(item):
    return symbol(item[0], **constants(item))


def constants(item):
    template, figures = item
    names = [name.rpartition(".")[2] for name in KERNELS[template].constants]
    return {name: figures[name] for name in names}


def refused(item):
    """Why the report's entry is out, or ''."""
    template, figures = item
    kernel = KERNELS[template]
    found = {"kv": 1, "page_size": 16, "groups": 1, **figures}
    if template in WRITE:
        found |= {"2.columns": found["columns"], "0.columns": found["columns"]}
    if hasattr(kernel, "layout"):
        return misfit(found, kernel, kernel.multiple, kernel.most, REPORT.layouts)
    parts = any(found[name] % number for name, number in kernel.multiple.items())
    return "a multiple" if parts else bounds.past(found, kernel.most)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.getbasetemp() / "simgpu"
    made.mkdir(exist_ok=True)
    return made


def test_every_assertion_of_the_sources_is_here():
    found = {
        f"{path.name}: {condition}"
        for path in simgpu.SOURCES.glob("*.cuh")
        for condition in re.findall(r"static_assert\((.*)\);", path.read_text())
    }
    assert found == set(ASSERTED)
    assert sum(path.read_text().count("static_assert") for path in simgpu.SOURCES.glob("*.cuh")) == len(ASSERTED)


@pytest.mark.parametrize("item", [*BEYOND, *TOO_FAR], ids=named)
def test_just_beyond_the_report_refuses(item):
    assert refused(item)


@pytest.mark.parametrize("item", BEYOND, ids=named)
def test_just_beyond_there_is_no_pack(item, folder):
    template, _ = item
    with pytest.raises(
        AssertionError, match=r"the kernels do not compile|asks for [yz] 65536, a device takes 1 to 65535"
    ):
        simgpu.cubin_pack(folder, [binding(template, **constants(item))], "sm_89")


def test_at_the_bounds_the_report_takes_what_compiles_and_launches(folder):
    within = [*WIDEST, *AS_LARGE]
    assert [named(item) for item in within if refused(item)] == []
    made = simgpu.cubin_pack(folder, [binding(item[0], **constants(item)) for item in within], "sm_89")
    entries = [
        entry for entries in json.loads((made / "pack.json").read_text())["symbols"].values() for entry in entries
    ]
    assert {max(entry["y"], entry["z"]) for entry in entries} >= {65535}


def test_every_bound_of_the_report_is_tried():
    for template, kernel in KERNELS.items():
        declared = {term for term, limit in kernel.most.items() if limit != MANY or " " in term}
        tried = {
            item.term
            for other, figures in [*BEYOND, *TOO_FAR]
            if other == template
            for item in bounds.past(figures, kernel.most)
        }
        assert declared == tried, template


def test_what_blocks_share_is_counted_in_31_bits():
    shared = [item for item in [*WRITTEN["kernel"], *WRITTEN["fused"]] if item.get("shared_scratch")]
    assert shared
    for item in shared:
        assert item["most"][" * ".join(item["shared_scratch"])] == MANY


def test_positions_are_whole_chunks_whatever_the_context():
    for context in (16, 255, 257, 4000):
        found = lowered(Limits(8, 2, context))
        assert {item.constants["positions"] % 256 for item in found.bindings if "attention" in item.op} == {0}


def lowered(limits, **config):
    checkpoint, graph = models.qwen3_checkpoint(config), models.graph_of("qwen3")
    return models.lowered_for("kernels/cuda", checkpoint, graph, limits, "bf16", "sm_89")


SAID = {
    "wide heads": (
        Limits(8, 2, 256), {"head_dim": 160},
        "attention is out: it needs head_dim to be at most 128, and head_dim is 160",
        "a model with head_dim of at most 128, or choose another kernel pack or ISA",
    ),
    "many queries to a key": (
        Limits(8, 2, 256), {"num_attention_heads": 32, "num_key_value_heads": 1},
        "attention is out: it needs heads / kv_heads to be at most 16, and that is 32",
        "a model with heads / kv_heads of at most 16, or choose another kernel pack or ISA",
    ),
    "long and many": (
        Limits(1024, 1024, 40960), {"num_attention_heads": 64, "num_key_value_heads": 8},
        "attention is out: it needs heads * positions * seqs to be at most 2147483647, and that is 2684354560",
        "limits.context = 32512, or limits.batch = 819, or choose another kernel pack or ISA",
    ),
    "a vocabulary": (
        Limits(8, 2, 256), {"vocab_size": 1 << 20},
        "linear_bf16 is out: it needs n to be at most 1048560, and n is 1048576",
        "a model with n of at most 1048560, or choose another kernel pack or ISA",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_a_model_that_is_past_a_bound_is_told_what_would_fit(name):
    limits, config, cause, fix = SAID[name]
    with pytest.raises(NoKernelError) as caught:
        lowered(limits, num_hidden_layers=1, **config)
    assert cause in caught.value.causes
    assert caught.value.fix == fix


@pytest.mark.parametrize("key", ["context", "batch"])
def test_what_is_said_to_fit_does(key):
    limits, config, *_ = SAID["long and many"]
    context, batch = (32512, limits.seqs) if key == "context" else (limits.context, 819)
    assert lowered(Limits(limits.tokens, batch, context), num_hidden_layers=1, **config).bindings


def test_heads_that_do_not_share_keys_evenly_are_no_attention():
    made = Builder("test", {})
    made.cache("kv", 1, 2, 32)
    for columns in (3 * 32, 4 * 32 + 16):
        q = made._value("q", "T", columns)
        with pytest.raises(Exception, match=r"no whole number of heads of 32 for each of 2 key and value heads"):
            made.attention("y", q, "kv", 0, 1.0)
