"""A step past the plan's limits is an error before any kernel sees it."""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Cache, Limits, Plan
from pih_runtime.step import Sampling, Step

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "plugins" / "backend" / "cpu"))

from pih_runtime.limits import check_step

PLAN = Plan("tiny", Limits(tokens=8, seqs=3, context=48), 100, 0, (), (Cache("kv", 1, 1, 16, 16, 9, "bf16"),), (), ())


def ints(*values):
    return array("i", values)


def step(**changes):
    """Two sequences: a prefill of three tokens, and a decode of what slot 1 last sampled."""
    good = Step(
        ids=ints(5, 6, 7, -2), positions=ints(0, 1, 2, 17), seq_start=ints(0, 3, 4), page_table=ints(4, 0, 2, 8),
        pages_per_seq=2, slots=ints(64, 65, 66, 129), rows=ints(2, 3), row_slots=ints(0, 1),
        sampling=(Sampling(), Sampling()),
    )  # fmt: skip
    return replace(good, **changes)


def test_a_good_step_passes():
    check_step(step(), PLAN, {1})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": ints(5, 6, 100, -2)}, "ids must lie in -3..99"),
        ({"ids": ints(5, 6, 7, -4)}, "ids must lie in -3..99"),
        ({"ids": ints(5, 6, 7, -1)}, "nothing was sampled in slot 0"),
        ({"ids": ints(5, 6, 7, -3)}, "nothing was sampled in slot 2"),
        ({"positions": ints(0, 1, -1, 17)}, "positions must lie in 0..47"),
        ({"positions": ints(0, 1, 2, 48)}, "positions must lie in 0..47"),
        ({"positions": ints(0, 1, 2, 32)}, "positions must lie in 0..31"),
        ({"positions": ints(0, 1, 2)}, "positions has 3 entries, not 4"),
        ({"seq_start": ints(0, 4, 4)}, "seq_start does not rise"),
        ({"seq_start": ints(1, 3, 4)}, "seq_start does not rise"),
        ({"seq_start": ints(0, 3, 5)}, "seq_start does not rise"),
        ({"seq_start": ints(0)}, "0 sequences"),
        ({"page_table": ints(4, 0, 2, 9)}, "page_table must lie in 0..8"),
        ({"page_table": ints(4, 0, -1, 8)}, "page_table must lie in 0..8"),
        ({"page_table": ints(4, 0, 2)}, "page_table has 3 entries, not 4"),
        ({"pages_per_seq": 3}, "page_table has 4 entries, not 6"),
        ({"pages_per_seq": 4, "page_table": ints(*[0] * 8)}, "4 pages a sequence, the plan takes 0 to 3"),
        ({"pages_per_seq": -1, "page_table": ints()}, "-1 pages a sequence"),
        ({"slots": ints(64, 65, 66, 144)}, "slots must lie in 0..143"),
        ({"rows": ints(2, 4)}, "rows must lie in 0..3"),
        ({"row_slots": ints(0, 3)}, "row_slots must lie in 0..2"),
        ({"row_slots": ints(1, 1)}, "two wanted rows share"),
        ({"sampling": (Sampling(),)}, "sampling has 1 entries, not 2"),
        ({"ids": array("q", [5, 6, 7, -2])}, "ids holds 'q'"),
    ],
)
def test_each_fault_is_named(changes, words):
    with pytest.raises(WorkerError, match=words):
        check_step(step(**changes), PLAN, {1})


def test_more_tokens_or_rows_than_the_plan_has():
    many = ints(*range(9))
    with pytest.raises(WorkerError, match="9 tokens, the plan takes 1 to 8"):
        check_step(step(ids=many), PLAN, {1})
    with pytest.raises(WorkerError, match="4 wanted rows"):
        check_step(step(rows=ints(0, 1, 2, 3)), PLAN, {1})


@given(
    name=st.sampled_from(["ids", "positions", "seq_start", "page_table", "slots", "rows", "row_slots"]),
    index=st.integers(0, 3), value=st.integers(-(2**31), 2**31 - 1),
)  # fmt: skip
def test_whatever_one_value_becomes_what_passes_stays_inside(name, index, value):
    changed = array("i", getattr(step(), name))
    changed[index % len(changed)] = value
    try:
        check_step(step(**{name: changed}), PLAN, {1})
    except WorkerError:
        return
    ends = {"ids": 100, "positions": 32, "seq_start": 5, "page_table": 9, "slots": 144, "rows": 4, "row_slots": 3}
    assert value < ends[name]
    assert value >= (-3 if name == "ids" else 0)
