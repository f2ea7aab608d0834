"""A plan of several ranks computes what the plan of one does: all ranks on backend/torch, on threads of one process."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Limits
from pih_steps.lower import lower, read_report
from pih_steps.lower.pack import packed_chunks
from pih_steps.lower.shares import share
from tests.truth.drive import Driver, Part
from tests.truth.models import (
    ROOT,
    TINY_LLAMA,
    TINY_QWEN3,
    graph_of,
    llama_checkpoint,
    qwen3_checkpoint,
    torch_backend,
)

sys.path[:0] = [str(ROOT / part) for part in ("examples/npu/transport", "plugins/backend/torch")]
LIMITS = Limits(tokens=16, seqs=4, context=64)
WIDE = {**TINY_QWEN3, "num_attention_heads": 8, "num_key_value_heads": 4}
CASES = {
    "qwen3, tied, 2 ranks": (qwen3_checkpoint, TINY_QWEN3, "qwen3", 2),
    "qwen3, tied, 4 ranks": (qwen3_checkpoint, WIDE, "qwen3", 4),
    "llama, a head of its own, 3 ranks": (
        lambda config: llama_checkpoint(config, "half"),
        {**TINY_LLAMA, "tie_word_embeddings": False, "vocab_size": 513},
        "llama",
        3,
    ),
}


class Shares:
    """contracts.Weights of all ranks, as the packed file has them."""

    def __init__(self, plan, checkpoint):
        self.held = {
            weight.stored(rank): b"".join(packed_chunks(weight, share(weight, checkpoint, rank, plan.ranks)))
            for weight in plan.weights
            for rank in range(plan.ranks)
        }

    def tensor(self, name):
        return memoryview(self.held[name])


class Together:
    """The ranks as one backend: each step is run by all at once."""

    def __init__(self, backends):
        self.backends, self.plan = backends, backends[0].plan
        self.threads = ThreadPoolExecutor(len(backends))

    def _all(self, name, *arguments):
        return list(self.threads.map(lambda backend: getattr(backend, name)(*arguments), self.backends))

    def submit(self, step):
        tickets = self._all("submit", step)
        assert len(set(tickets)) == 1
        return tickets[0]

    def wait(self, ticket):
        ids = self._all("wait", ticket)
        assert all(found == ids[0] for found in ids)
        return ids[0]

    def logits(self):
        found = [np.array(rows) for rows in self._all("logits")]
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])  # the same bits on every rank
        return found[0]


def ranks_of(checkpoint, graph, ranks):
    from pih_backend_torch import TorchBackend
    from pih_transport_npu.transport import Transport

    report = read_report(ROOT / "plugins/backend/torch", "x86-64-v3")
    plan = lower(checkpoint, graph, report, LIMITS, "f32", ranks=ranks).plan
    transport, weights = Transport(ranks), Shares(plan, checkpoint)
    return Together([TorchBackend(plan, weights, transport.join(rank)) for rank in range(ranks)])


@pytest.mark.parametrize("case", CASES)
def test_logits_and_ids_are_those_of_one_rank(case):
    make, config, family, count = CASES[case]
    checkpoint = make(config)
    one = Driver(torch_backend(checkpoint, graph_of(family), LIMITS))
    all_ = Driver(ranks_of(checkpoint, graph_of(family), count))
    prompt, other = list(range(3, 14)), [5, 9, 2]
    steps = [
        [Part(0, 0, prompt[:7], wanted=range(4))],
        [Part(0, 7, prompt[7:]), Part(2, 0, other)],
        [Part(0, 11, [-1]), Part(2, 3, [-3])],
    ]
    for parts in steps:
        (ids, logits), (ids_here, logits_here) = one.step(parts), all_.step(parts)
        np.testing.assert_allclose(logits_here, logits, rtol=0, atol=2e-5 * np.abs(logits).max())
        assert ids_here == ids
    assert all_.greedy(prompt, 8, slot=1) == one.greedy(prompt, 8, slot=1)


def test_a_backend_takes_only_its_own_number_of_ranks():
    checkpoint = qwen3_checkpoint(TINY_QWEN3)
    backend = ranks_of(checkpoint, graph_of("qwen3"), 2).backends[0]
    from pih_backend_torch import TorchBackend

    with pytest.raises(WorkerError, match="the plan is of 2 ranks"):
        TorchBackend(backend.plan, Shares(backend.plan, checkpoint))
