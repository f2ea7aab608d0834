"""Bugs planted in a copy of the kernels' sources: the check of the kernel catches each one."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

import pytest

from pih_runtime.step import Sampling
from pih_steps import cubin
from tests.integration.cuda.kernels import checks, far, sizes, texts
from tests.integration.cuda.kernels.made import binding
from tests.integration.cuda.kernels.rounding import bf16_normal, normal, rng
from tests.support import apart, simgpu
from tests.support.launches import Launcher
from tests.support.program import ROOT

WITHOUT = "(void)0;"
SHAPE = sizes.GROUPS[1]


def linear(here):
    weight, x, y = checks.linear_case(48, 288, 65)
    for tokens in (7, 65):
        checks.linear(here, weight, x[:tokens], y[:tokens], 1)


def linear_of_long_rows(here):
    checks.linear(here, *checks.linear_case(16, 4128, 9), 0, seeds=(1,))


def linear_int8(here):
    weight, scales = rng(1).integers(-127, 128, (48, 288)).astype("i1"), normal(1, 48)
    _, x, y = checks.linear_case(48, 288, 9)
    checks.linear_int8(here, weight, scales, x, y, 1)


def norm(here):
    checks.rms_norm_bf16(here, normal(1, 9, 64), normal(2, 64), wanted_rows=[8, 0, 6, 3])


def long_norm(here):
    checks.rms_norm_bf16(here, normal(1, 3, 4098), normal(2, 4098), wanted_rows=[2, 0])


def copies(here):
    checks.copies(here, normal(1, 9, 4098), [8, 0, 5])


def heads_norm(here):
    checks.rms_norm(here, normal(1, 9, 128), normal(2, 32), 4)


def attention(here):
    shape = SHAPE
    some = texts.Texts([33, 300, 1], shape.heads, shape.kv_heads, shape.head_dim)
    for starts in ([32, 299, 0], [20, 290, 0]):
        texts.attention(here, some, starts, shape.positions, shape.seqs, times=2)


def attention_of_every_record(here):
    texts.at_their_ends(here, sizes.FULL)


def kv_write(here):
    checks.kv_write(here, 3, 64, rng(1).permutation(80)[:21])


def rope_kv_write(here):
    checks.rope_kv_write(here, 3, 3, 64, 1, tokens=9, norm=True)


def embed(here):
    checks.embed(here, bf16_normal(1, *sizes.EMBED), [0, 79, -2, 17, 8], [33, 44])


def silu_mul(here):
    checks.silu_mul(here, normal(1, 9, 4098), normal(2, 9, 4098))


def sample(here):
    wishes = [Sampling(), Sampling(1.0, 20, seed=1), Sampling(1.0, 0, 0.9, seed=2), Sampling(0.9, 0, 1.0, 0.1, 3)]
    checks.sample(here, normal(3, 4, 1000) * 3, wishes, [0, 5, 9, 2])
    checks.sample(here, normal(3, 4, 1000) * 0, wishes, [0, 5, 9, 2])


def sample_of_many_ids(here):
    logits = normal(3, 3, sizes.VOCAB[-1])
    logits[:, 1 << 16 :] += 20
    checks.sample(here, logits, [Sampling(1.0, seed=seed) for seed in range(3)], [0, 5, 9])


@dataclass(frozen=True)
class Bug:
    """What stands `nth` in a source is replaced; `check` must fail for the reason that `words` match."""

    name: str
    check: object
    source: str
    old: str
    new: str
    words: str = ""
    nth: int = 0


def of(*sources):
    return [item for item in sizes.BINDINGS if item["source"] in sources]


def far_of(name):
    template = name if name.endswith("int8") else f"{name}_bf16"
    return [item for item in sizes.BINDINGS if item["template"] == template and item["constants"]["k"] == sizes.FAR_K]


CHECKED = {
    linear: of("linear.cuh"), linear_of_long_rows: of("linear.cuh"), linear_int8: of("linear.cuh"),
    norm: of("rms_norm.cuh"), long_norm: of("rms_norm.cuh"), heads_norm: of("rms_norm.cuh"),
    kv_write: of("kv_write.cuh"), rope_kv_write: of("rope_kv_write.cuh"), embed: of("embed.cuh"),
    sample: of("sample.cuh"), sample_of_many_ids: of("sample.cuh"),
    copies: of("rows.cuh"), silu_mul: of("silu_mul.cuh"),
    attention: [binding("attention", **SHAPE.constants)],
    attention_of_every_record: [binding("attention", **sizes.FULL.constants)],
    far.attention: [binding("attention", **sizes.LONG.constants)],
    far.kv_write: [binding("kv_write", kv_heads=1, head_dim=32)],
    **{check: far_of(check.__name__) for check in (far.linear, far.linear_int8, far.embed, far.embed_int8)},
}  # fmt: skip

BARRIERS = {
    "attention.cuh": attention_of_every_record,
    "linear.cuh": linear,
    "pack.cuh": norm,
    "sample.cuh": sample,
}
STRIP = "strip * Weight::template strip_bytes<K>()"
RECORDS = "float* records = step.scratch + "
PAGE_OF = "step.page_table[sequence * step.counts[3] + block]"
BARRIER = "__syncthreads();"
ROW_CHECK = "if (row >= rows_of(call, step)) return;"
BUGS = [
    *(
        Bug(f"without barrier {nth} of {path.name}", BARRIERS[path.name], path.name, BARRIER, WITHOUT, nth=nth)
        for path in sorted(simgpu.SOURCES.glob("*.cuh"))
        for nth in range(path.read_text().count(BARRIER))
    ),
    Bug("page table off by one", attention, "attention.cuh", PAGE_OF, PAGE_OF.replace("block", "block + 1")),
    Bug(
        "page table of the next sequence",
        attention,
        "attention.cuh",
        PAGE_OF,
        PAGE_OF.replace("sequence", "(sequence + 1)"),
    ),
    Bug("shuffle of half a warp", heads_norm, "pack.cuh", "0xffffffffu, v, distance", "0xffffu, v, distance", "mask"),
    Bug("shuffle that stops short", heads_norm, "pack.cuh", "distance; distance /= 2", "distance > 1; distance /= 2"),
    Bug("shuffle to the wrong lane", attention, "attention.cuh", "sum[side], 2)", "sum[side], 4)"),
    Bug("second operand swapped", linear, "linear.cuh", "v.x, v.y", "v.y, v.x"),
    Bug("halves of a tile swapped", linear, "linear.cuh", "a, v.x, v.y", "b, v.x, v.y"),
    Bug(
        "first operand swapped",
        attention,
        "attention.cuh",
        "p.z = pack_bf16(score[1][0]",
        "p.z = pack_bf16(score[1][2]",
    ),
    Bug("keys swapped", attention, "attention.cuh", "k.x, k.y", "k.z, k.w"),
    Bug("the scale of another row", linear_int8, "linear.cuh", "n % 16", "n % 8"),
    Bug("a byte that is not centred", linear_int8, "weight.cuh", "8388736.f", "8388735.f"),
    Bug(
        "bytes of a pair swapped",
        linear_int8,
        "weight.cuh",
        "value(word, i), value(word, i + 1)",
        "value(word, i + 1), value(word, i)",
    ),
    Bug("no check of the last token's tile", linear, "linear.cuh", "if (token >= tokens) return;", ""),
    Bug("a token past the end is read", linear, "linear.cuh", "token < tokens ? token : tokens - 1", "token", "700"),
    Bug("no check of the rows of a grid", copies, "rows.cuh", ROW_CHECK, ""),
    Bug("no check of the columns of a grid", silu_mul, "silu_mul.cuh", "|| i >= COLUMNS / 2", ""),
    Bug(
        "a page's places for v",
        kv_write,
        "kv_write.cuh",
        "position / 8 * 2 + position % 2",
        "position % 2 * 2 + position / 8",
    ),
    Bug("v of the next place", rope_kv_write, "kv_write.cuh", "d % 16 / 8 * 4", "d / 8 % 4 * 2"),
    Bug("the wrong slot", kv_write, "kv_write.cuh", "slot % PAGE", "(slot + 1) % PAGE"),
    Bug("a token that sees the next", attention, "attention.cuh", "place + 1 <= at[row]", "place <= at[row]"),
    Bug("a token that does not see itself", attention, "attention.cuh", "place <= at[row] ?", "place < at[row] ?"),
    Bug("stale values are weighed", attention, "attention.cuh", "if (block == last / PAGE) v =", "if (false) v ="),
    Bug("31 bits for where a page is read", far.attention, "attention.cuh", "static_cast<int64>(page)", "page"),
    Bug(
        "31 bits for where it is written",
        far.kv_write,
        "kv_write.cuh",
        "static_cast<int64>(slot / PAGE)",
        "slot / PAGE",
    ),
    Bug("31 bits for where a strip is", far.linear, "linear.cuh", STRIP, f"static_cast<int>({STRIP})"),
    Bug("31 bits for where its scales are", far.linear_int8, "linear.cuh", STRIP, f"static_cast<int>({STRIP})", nth=1),
    Bug("31 bits for a strip's bytes", far.linear, "weight.cuh", "int64 strip_bytes", "int strip_bytes"),
    Bug("31 bits for an id's strip", far.embed, "weight.cuh", "int64 strip_bytes", "int strip_bytes"),
    Bug(
        "31 bits for an id's strip in int8", far.embed_int8, "weight.cuh", "int64 strip_bytes", "int strip_bytes", nth=1
    ),
    Bug(
        "rows of 1024",
        linear_of_long_rows,
        "linear.cuh",
        "at < slice_begin<K>(index + 1)",
        "at < min(32, slice_begin<K>(index + 1))",
    ),
    Bug("1024 columns of a norm", long_norm, "rms_norm.cuh", "i < COLUMNS;", "i < min(COLUMNS, 1024);"),
    Bug("1024 columns of a copy", copies, "rows.cuh", "i < COLUMNS / 2", "i < min(COLUMNS / 2, 512)"),
    Bug("1024 columns of a product", silu_mul, "silu_mul.cuh", "i >= COLUMNS / 2", "i >= min(COLUMNS / 2, 512)"),
    Bug("1024 columns of a table", embed, "embed.cuh", "pair < K / 2", "pair < min(K / 2, 512)"),
    Bug(
        "16 bits for an id",
        sample_of_many_ids,
        "sample.cuh",
        "static_cast<unsigned>(id)",
        "static_cast<unsigned short>(id)",
    ),
    Bug("records one further", attention_of_every_record, "attention.cuh", RECORDS, f"{RECORDS} RECORD + "),
    Bug("records one before", attention_of_every_record, "attention.cuh", RECORDS, f"{RECORDS} -RECORD + "),
    Bug(
        "counters in the last record",
        attention_of_every_record,
        "attention.cuh",
        "static_cast<int64>(RECORDS) * RECORD)",
        "static_cast<int64>(RECORDS - 1) * RECORD)",
    ),
    Bug("a counter that is not put back", attention, "attention.cuh", "*counter = 0;", WITHOUT),
    Bug("another kv head", attention, "attention.cuh", "KV_HEADS + kv_head) * PAGE", "KV_HEADS + kv_head / 2) * PAGE"),
    Bug("the bf16 of another id", embed, "embed.cuh", "id / 8 % 2 * 4", "id % 2 * 4"),
    Bug(
        "equal ids in the wrong order",
        sample,
        "sample.cuh",
        "(0xffffffffu - static_cast<unsigned>(id))",
        "static_cast<unsigned>(id)",
    ),
    Bug(
        "a barrier in a branch",
        norm,
        "rms_norm.cuh",
        ROW_CHECK,
        f"{ROW_CHECK} if (threadIdx.x < 64) {BARRIER}",
        "barrier",
        1,
    ),
    Bug(
        "half a warp leaves",
        norm,
        "rms_norm.cuh",
        ROW_CHECK,
        f"{ROW_CHECK} if (threadIdx.x < 16) return;",
        "not all lanes",
        1,
    ),
]


def replaced(text, old, new, nth):
    """The text with the nth of what is to be replaced."""
    parts = text.split(old)
    assert len(parts) > nth + 1, f"{old!r} is not in the source {nth + 1} times"
    return old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])


@pytest.fixture(scope="module")
def planted(folder, launches, tmp_path_factory):
    """A function: bug → the kernels with it, those that its check runs."""

    def make(bug):
        sources = tmp_path_factory.mktemp("planted") / "cuda"
        shutil.copytree(ROOT / "kernels/cuda", sources)
        path = sources / bug.source
        path.write_text(replaced(path.read_text(), bug.old, bug.new, bug.nth))
        return Launcher(simgpu.module(folder, cubin.source(CHECKED[bug.check]), sources), launches)

    return make


@pytest.mark.parametrize("check", CHECKED, ids=lambda check: f"{check.__module__.rpartition('.')[2]}.{check.__name__}")
def test_the_check_passes_on_the_kernels_as_they_are(here, check):
    check(here)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(planted, bug):
    kernels = planted(bug)
    said = apart.raised(lambda: bug.check(kernels))
    assert re.match(rf"(?s)(AssertionError|RuntimeError|SIGSEGV|SIGBUS|SIGABRT): .*({bug.words})", said), said
