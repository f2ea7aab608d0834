"""The memory plan: aligned, inside the arena, and never two live values on the same bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pih_runtime.plan import Call, Limits, Operand
from pih_steps.lower.graph import Value
from pih_steps.lower.memory import Life, assign, lives, plan_buffers

LIMITS = Limits(tokens=3, seqs=2, context=16)


@st.composite
def value_lives(draw):
    found = []
    for index in range(draw(st.integers(1, 25))):
        first = draw(st.integers(0, 30))
        found.append(Life(f"v{index}", draw(st.integers(1, 5000)), first, first + draw(st.integers(0, 12))))
    return found


def together(a, b):
    return a.first <= b.last and b.first <= a.last


@given(value_lives())
def test_no_two_live_values_share_a_byte(items):
    offsets = assign(items)
    for index, a in enumerate(items):
        assert offsets[a.name] % 64 == 0
        for b in items[index + 1 :]:
            if together(a, b):
                begin, end = (
                    max(offsets[a.name], offsets[b.name]),
                    min(offsets[a.name] + a.nbytes, offsets[b.name] + b.nbytes),
                )
                assert begin >= end, (a, b)


@given(value_lives())
def test_the_order_of_values_does_not_matter(items):
    assert assign(items) == assign(items[::-1])


def test_values_of_other_times_share_bytes():
    assert assign([Life("a", 640, 0, 1), Life("b", 640, 2, 3)]) == {"a": 0, "b": 0}
    assert assign([Life("a", 640, 0, 2), Life("b", 640, 2, 3)]) == {"a": 0, "b": 640}


def call(*buffers):
    return Call("gather", "gather", tuple(Operand(buffer=name, columns=1) for name in buffers), {})


def test_a_life_is_from_first_to_last_touch():
    values = {name: Value(name, rows, 10) for name, rows in (("a", "T"), ("b", "R"))}
    found = lives([call("a", "b"), call("b", "b"), call("a", "a")], values, LIMITS)
    assert found == [Life("a", 3 * 64, 0, 2), Life("b", 2 * 64, 0, 1)]


def test_values_of_one_form_and_place_are_one_buffer():
    values = {name: Value(name, "T", 20) for name in ("x", "0.h", "1.h")}
    chain = [call("x", "0.h"), call("0.h", "x"), call("x", "1.h"), call("1.h", "x")]
    buffers, calls, arena = plan_buffers(chain, values, LIMITS)
    assert [buffer.name for buffer in buffers] == ["x", "h"]
    assert calls[2].operands[1].buffer == "h"
    assert arena == 2 * 3 * 128
    assert {buffer.row_bytes for buffer in buffers} == {128}


def test_buffers_with_one_label_are_numbered():
    values = {name: Value(name, "T", 20) for name in ("0.h", "1.h")}
    buffers, calls, _ = plan_buffers([call("0.h", "1.h")], values, LIMITS)
    assert [buffer.name for buffer in buffers] == ["h", "h~2"]
    assert [operand.buffer for operand in calls[0].operands] == ["h", "h~2"]
