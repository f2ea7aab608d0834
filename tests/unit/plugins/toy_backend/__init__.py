"""A backend without arithmetic: the next id is a hash of all ids of the sequence, read back through its page table.

A real plugin of its own for tests. It runs a step only when it is waited for, in order, as a device would run it
late; it refuses any step that breaks the contract, and any page table that leads to other tokens than were written.
With a `gate`, the path of a file, it runs its first eight steps at once and the others when that file is there.
"""

import hashlib
import time
from array import array
from collections import deque
from pathlib import Path

from pih_runtime import plan as plans
from pih_runtime.errors import WorkerError
from pih_runtime.step import Sampling, Step

GREEDY = Sampling()
FREE_STEPS = 8  # a text begins to come after a few tokens


def next_id(ids, choices, sampling=GREEDY):
    """What the toy model says after `ids`; sampled where temperature is not 0."""
    seed = f" {sampling}" if sampling.temperature else ""
    digest = hashlib.sha256(array("i", ids).tobytes() + seed.encode()).digest()
    return choices[int.from_bytes(digest[:8], "little") % len(choices)]


def answer(prompt, count, choices, sampling=GREEDY, stop_ids=()):
    """The ids of a whole answer: the oracle."""
    ids = list(prompt)
    while len(ids) < len(prompt) + count:
        ids.append(next_id(ids, choices, sampling))
        if ids[-1] in stop_ids:
            break
    return ids[len(prompt) :]


class ToyBackend:
    def __init__(self, plan, choices, seconds=0.0, fail_at=-1, fail_with=-1, gate="", weights=None):
        self.plan = plan
        self.choices = choices
        self.seconds = seconds
        self.fail_at = fail_at
        self.fail_with = fail_with  # this many sequences in one step
        self.gate = gate
        self.steps = 0
        self._weights = weights  # what it would compute with, checked before the first step
        self.stopped = 0
        cache = plan.caches[0]
        self._page_size = cache.page_size
        self._cache = [(-1, -1)] * (cache.pages * cache.page_size)
        self._last = [-1] * plan.limits.seqs
        self._queue = deque()

    def submit(self, step: Step):
        assert len(self._queue) < 2, "three steps in flight"
        self._check(step)
        ticket = {"step": step, "ids": None}
        self._queue.append(ticket)
        return ticket

    def wait(self, ticket):
        while ticket["ids"] is None:
            item = self._queue.popleft()
            item["ids"] = self._run(item["step"])
        return ticket["ids"]

    def logits(self):
        return []

    def stop(self):
        self.stopped += 1

    def _check(self, step):
        limits = self.plan.limits
        tokens, seqs = len(step.ids), len(step.seq_start) - 1
        assert 1 <= tokens <= limits.tokens
        assert 1 <= seqs <= limits.seqs
        assert len(step.positions) == len(step.slots) == tokens
        assert len(step.page_table) == seqs * step.pages_per_seq
        assert len(step.rows) == len(step.row_slots) == len(step.sampling) <= seqs
        assert len(set(step.row_slots)) == len(step.row_slots)
        assert len(set(step.slots)) == tokens, "one cache row written twice"
        assert all(-limits.seqs <= token < self.plan.vocab for token in step.ids)
        assert list(step.seq_start) == sorted(set(step.seq_start))
        assert (step.seq_start[0], step.seq_start[-1]) == (0, tokens)

    def _run(self, step):
        time.sleep(self.seconds)
        while self.gate and self.steps >= FREE_STEPS and not Path(self.gate).exists():
            time.sleep(0.005)
        if self.steps == self.fail_at or len(step.seq_start) - 1 == self.fail_with:
            raise WorkerError("the toy broke, as told")
        if self._weights and not self.steps:
            self._weights.check(["toy"])
        self.steps += 1
        sampled, wanted = [], 0
        for index in range(len(step.seq_start) - 1):
            pages = step.page_table[index * step.pages_per_seq : (index + 1) * step.pages_per_seq]
            for token in range(step.seq_start[index], step.seq_start[index + 1]):
                position = step.positions[token]
                row = self._row(pages, position)
                assert row == step.slots[token], "slot and page table disagree"
                given = step.ids[token]
                self._cache[row] = (self._last[-given - 1] if given < 0 else given, position)
                if wanted < len(step.rows) and step.rows[wanted] == token:
                    ids = [self._read(pages, place) for place in range(position + 1)]
                    sampled.append(next_id(ids, self.choices, step.sampling[wanted]))
                    wanted += 1
        assert wanted == len(step.rows), "rows are not in order of tokens"
        for slot, token in zip(step.row_slots, sampled, strict=True):
            self._last[slot] = token
        return sampled

    def _row(self, pages, position):
        return pages[position // self._page_size] * self._page_size + position % self._page_size

    def _read(self, pages, position):
        token, written = self._cache[self._row(pages, position)]
        assert written == position, "the page table leads to another token's page"
        return token


def start(context):
    weights = context.provider("storage.weights")
    weights.unchecked("toy")
    plan = plans.from_json((Path(context.root) / "plan.json").read_bytes())
    return ToyBackend(plan, weights=weights, **context.settings)
