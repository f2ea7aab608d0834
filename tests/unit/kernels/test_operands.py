"""Where operands lie: buffers by row and column, caches by layer and side, weights by name; the logits' rows."""

import pytest

from pih_runtime import operands
from pih_runtime.errors import WorkerError
from pih_runtime.operands import Place
from pih_runtime.plan import Buffer, Cache, Call, Limits, Operand, Plan

BUFFERS = (Buffer("x", "T", 8, "bf16", 64, 128), Buffer("y", "R", 12, "f32", 64, 640))
CACHE = Cache("kv", layers=3, kv_heads=2, head_dim=16, page_size=16, pages=5, dtype="bf16")
SIDE = 5 * 2 * 16 * 16 * 2


def plan(*calls):
    return Plan("tiny", Limits(tokens=8, seqs=3, context=48), 12, 1024, BUFFERS, (CACHE,), (), calls)


@pytest.mark.parametrize(
    ("operand", "place"),
    [
        (Operand(buffer="x", column=3, columns=5), Place(10_000 + 128 + 6, 64, 5)),
        (Operand(buffer="y", column=3, columns=5), Place(10_000 + 640 + 12, 64, 5)),
        (Operand(weight="norm"), Place(777)),
        (Operand(cache="kv", layer=0), Place(5000, SIDE)),
        (Operand(cache="kv", layer=2), Place(5000 + 4 * SIDE, SIDE)),
    ],
)
def test_an_operand_has_its_place(operand, place):
    assert operands.places(plan(), 10_000, {"kv": 5000}, {"norm": 777}.__getitem__)(operand) == place


def test_logits_are_what_is_sampled_from():
    sample = Call("sample", "s", (Operand(buffer="y", column=2, columns=10),), {})
    assert operands.logits(plan(sample), 10_000) == Place(10_000 + 640 + 8, 64, 10)


def test_a_plan_without_sampling_has_no_logits():
    with pytest.raises(WorkerError, match="computes no logits"):
        operands.logits(plan(), 0)
