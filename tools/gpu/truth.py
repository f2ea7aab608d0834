"""Seeded models against backend/torch, in every way that a step can be; and which kernel entries took part.

The tiny one in all ways, and every entry that it can launch must have been launched. The large one, whose entries
divide their sums among more blocks, across a boundary of attention's pieces, some way into its context, and with as
many rows as are measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pih_backend_cuda.pack import Pack, read_pack
from pih_backend_torch import TorchBackend

from pih_runtime.plan import Plan
from tests.truth import ways
from tests.truth.compare import largest_difference, mean_kl, same_top
from tests.truth.drive import Driver, Part
from tools.gpu.deployments import Deployment, Seeded, both
from tools.gpu.running import running

COUNT = 24  # of the ids that go all ways
PIECE = 256  # positions that one block of attention reads
SIZES = (8, 32)  # rows of a step; one and very many are in what goes across a boundary
FURTHEST, LEAST_SAME = 1e-3, 0.95  # nats; share of rows whose largest logit is the same


def every_way(deployment: Deployment, sm: str) -> Iterator[dict[str, Any]]:
    """For bf16 and int8 a row for each way, with and without graphs, and one for the entries that were launched."""
    for stored in both(deployment):
        ids = _ids(stored, PIECE + 4)
        wanted, launched = _oracle(stored).logits(ids), Counter[str]()
        for graphs in (False, True):
            with running(stored, sm, graphs=graphs) as (backend, watched):
                driver = Driver(backend)
                for name, (rows, way) in WAYS.items():
                    row = _row(wanted[rows], way(driver, ids))
                    yield {"model": stored.name, "name": f"{name}{', graphs' if graphs else ''}", **row}
                launched += watched.launched
        yield _taken_part(stored, sm, launched)


def across(deployment: Deployment, sm: str, boundary: int) -> Iterator[dict[str, Any]]:
    """For bf16 and int8, with graphs: a prefill and decodes across a boundary, and steps of the rows that are measured.

    And a row for the entries that none of these launched, which there must not be.
    """
    for stored in both(deployment):
        ids = _ids(stored, boundary + 4)
        oracle = _oracle(stored)
        wanted = {f"across {boundary}": ways.across(oracle, ids, boundary)}
        wanted |= {f"{rows} rows": oracle.logits(ids[:rows]) for rows in SIZES}
        with running(stored, sm, graphs=True) as (backend, watched):
            driver = Driver(backend)
            found = [ways.across(driver, ids, boundary), *(_whole(driver, ids[:rows]) for rows in SIZES)]
        for (name, right), logits in zip(wanted.items(), found, strict=True):
            # few rows, of a vocabulary so large that seeded weights leave the first of them hardly ahead of the second
            yield {"model": stored.name, "name": name, **_row(right, logits, least_same=0)}
        yield _taken_part(stored, sm, watched.launched)


def _taken_part(deployment: Deployment, sm: str, launched: Counter[str]) -> dict[str, Any]:
    every = _reachable(deployment.lowered("kernels/cuda", sm).plan, read_pack(deployment.cubin(sm)))
    idle = sorted(every - launched.keys())
    row = {"name": "every kernel entry took part", "ok": not idle, "entries": len(every), "idle": idle}
    return {"model": deployment.name, **row}


def _ids(deployment: Deployment, count: int) -> list[int]:
    vocabulary = deployment.lowered("backend/torch", "x86-64-v3", "f32").plan.vocab
    return [int(token) for token in np.random.default_rng(3).integers(0, vocabulary, count)]


def _oracle(deployment: Deployment) -> Driver:
    """With a cache for few sequences, which is in float32 on the host."""
    few = replace(deployment, limits=replace(deployment.limits, seqs=8))
    lowered = few.lowered("backend/torch", "x86-64-v3", "f32")
    return Driver(TorchBackend(lowered.plan, Seeded(lowered, few.checkpoint(seeded=True))))


def _reachable(plan: Plan, pack: Pack) -> set[str]:
    """Entries that some step within the limits launches: a call over wanted rows has fewer than one over tokens."""
    limits = {"T": plan.limits.tokens, "R": plan.limits.seqs}
    rows = {buffer.name: limits[buffer.rows] for buffer in plan.buffers}
    found = set()
    for call in plan.calls:
        most = rows[[operand.buffer for operand in call.operands if operand.buffer][-1]]
        least = 1
        for launch in pack.launches[call.symbol]:
            found |= {launch.entry} if least <= most else set()
            least = launch.most_rows + 1
    return found


def _row(wanted: np.ndarray, logits: np.ndarray, least_same: float = LEAST_SAME) -> dict[str, Any]:
    kl, same = mean_kl(wanted, logits), same_top(wanted, logits)
    ok = bool(np.isfinite(logits).all() and kl <= FURTHEST and same >= least_same)
    furthest = largest_difference(wanted, logits)
    return {"ok": ok, "kl": kl, "same_top": same, "largest_difference": furthest}


def _whole(driver: Driver, ids: Sequence[int]) -> np.ndarray:
    """All tokens in one step."""
    return driver.step([Part(0, 0, ids, range(len(ids)))])[1]


def _in_company(driver: Driver, ids: Sequence[int]) -> np.ndarray:
    """Each token as a decode beside others, of which there are more and fewer; and beside a prefill."""
    found = []
    for at, token in enumerate(ids):
        others = [Part(slot, at, [ids[-1 - at]]) for slot in range(4, 4 + at * 5 % 28)]
        prefill = [Part(3, 0, ids[:20], wanted=())] if at % 7 == 6 else []
        found.append(driver.step([Part(0, at, [token]), *others, *prefill])[1][:1])
    return np.concatenate(found)


_FIRST = slice(0, COUNT)
# Which ids each way gives the logits after, and how; it gets all of them.
WAYS: dict[str, tuple[slice, Callable[[Driver, list[int]], np.ndarray]]] = {
    "prefill": (_FIRST, lambda driver, ids: _whole(driver, ids[:COUNT])),
    "chunked prefill": (_FIRST, lambda driver, ids: ways.chunked(driver, ids[:COUNT])),
    "decode": (_FIRST, lambda driver, ids: ways.decoded(driver, ids[:COUNT])),
    "mixed batches": (_FIRST, lambda driver, ids: _in_company(driver, ids[:COUNT])),
    f"across {PIECE}": (slice(PIECE - ways.BEFORE - 1, None), lambda driver, ids: ways.across(driver, ids, PIECE)),
}
