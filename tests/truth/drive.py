"""Drives any `contracts.Backend` over lists of tokens: makes the ragged batches that an engine would make."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pih_runtime.step import Sampling, Step


@dataclass(frozen=True)
class Part:
    """One sequence's share of a step: ids from position `start` on; wanted: indices into ids, the last by default."""

    slot: int
    start: int
    ids: Sequence[int]
    wanted: Sequence[int] | None = None
    sampling: Sampling = field(default_factory=Sampling)


class Driver:
    """Each slot has pages for a whole context, scattered over the cache so that a page table that is ignored shows."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        limits, cache = backend.plan.limits, backend.plan.caches[0]
        self.page_size = cache.page_size
        per_slot = -(-limits.context // cache.page_size)
        pages = list(range(cache.pages))
        random.Random(7).shuffle(pages)
        self.pages = [pages[slot * per_slot : (slot + 1) * per_slot] for slot in range(cache.pages // per_slot)]

    def step(self, parts: Sequence[Part]) -> tuple[list[int], np.ndarray]:
        """Run the parts in one step; ids and logits of all wanted rows, part by part."""
        ticket = self.backend.submit(self.batch(parts))
        ids = self.backend.wait(ticket)
        rows = [np.array(row, np.float32) for row in self.backend.logits()]
        return ids, np.array(rows, np.float32)

    def batch(self, parts: Sequence[Part]) -> Step:
        ids, positions, starts, table, slots, rows, row_slots = (array("i") for _ in range(7))
        starts.append(0)
        sampling: list[Sampling] = []
        width = max(-(-(part.start + len(part.ids)) // self.page_size) for part in parts)
        taken = {part.slot for part in parts}
        spare = iter([slot for slot in range(self.backend.plan.limits.seqs) if slot not in taken])
        for part in parts:
            pages = self.pages[part.slot]
            wanted = [len(part.ids) - 1] if part.wanted is None else part.wanted
            rows.extend(len(ids) + index for index in wanted)
            # Each row keeps its id in a slot of its own; the last wanted row's is the sequence's.
            row_slots.extend([*(next(spare) for _ in wanted[1:]), part.slot] if len(wanted) else [])
            sampling += [part.sampling] * len(wanted)
            for offset, token in enumerate(part.ids):
                position = part.start + offset
                ids.append(token)
                positions.append(position)
                slots.append(pages[position // self.page_size] * self.page_size + position % self.page_size)
            starts.append(len(ids))
            table.extend((pages + [0] * width)[:width])
        return Step(ids, positions, starts, table, width, slots, rows, row_slots, tuple(sampling))

    def logits(self, ids: Sequence[int], slot: int = 0) -> np.ndarray:
        """Logits after every one of the ids, [len(ids), V]."""
        limits = self.backend.plan.limits
        size = min(limits.tokens, limits.seqs)
        return np.concatenate(
            [
                self.step([Part(slot, at, ids[at : at + size], range(len(ids[at : at + size])))])[1]
                for at in range(0, len(ids), size)
            ]
        )

    def greedy(
        self, prompt: Sequence[int], count: int, pieces: Sequence[int] | None = None, slot: int = 0
    ) -> list[int]:
        """`count` ids after the prompt, which is fed in pieces of these lengths."""
        at, token = 0, -1
        for length in pieces or [len(prompt)]:
            token = self.step([Part(slot, at, prompt[at : at + length])])[0][0]
            at += length
        assert at == len(prompt)
        return [token, *self.decode(token, at, count - 1, slot)]

    def decode(self, token: int, position: int, count: int, slot: int = 0) -> Iterator[int]:
        """`count` ids after `token` at `position`; each is read from the device as the one last sampled."""
        for at in range(position, position + count):
            token = self.step([Part(slot, at, [-(slot + 1)])])[0][0]
            yield token
