"""The tiny model against backend/torch, in every way that a step can be; and that every kernel entry took part."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pih_backend_cuda.pack import Pack, read_pack
from pih_backend_torch import TorchBackend

from pih_runtime.plan import Plan
from tests.truth.compare import largest_difference, mean_kl, same_top
from tests.truth.drive import Driver, Part
from tools.gpu.deployments import TINY, Deployment, Seeded, both
from tools.gpu.running import running

COUNT = 48
FURTHEST, LEAST_SAME = 1e-3, 0.95  # nats; share of rows whose largest logit is the same


def checks(sm: str) -> Iterator[dict[str, Any]]:
    """For bf16 and int8 a row for each way, with and without graphs, and one for the entries that were launched."""
    for deployment in both(TINY):
        for row in _of(deployment, sm):
            yield {"model": deployment.name, **row}


def _of(deployment: Deployment, sm: str) -> Iterator[dict[str, Any]]:
    ids = [int(token) for token in np.random.default_rng(3).integers(0, 512, COUNT)]
    lowered = deployment.lowered("backend/torch", "x86-64-v3", "f32")
    oracle = Driver(TorchBackend(lowered.plan, Seeded(lowered, deployment.checkpoint(seeded=True))))
    wanted = oracle.logits(ids)
    launched: Counter[str] = Counter()
    for graphs in (False, True):
        with running(deployment, sm, graphs=graphs) as (backend, watched):
            driver = Driver(backend)
            for name, way in WAYS.items():
                yield _row(f"{name}{', graphs' if graphs else ''}", wanted, way(driver, ids))
            launched += watched.launched
    every = _reachable(deployment.lowered("kernels/cuda", sm).plan, read_pack(deployment.cubin(sm)))
    idle = sorted(every - launched.keys())
    yield {"name": "every kernel entry took part", "ok": not idle, "entries": len(every), "idle": idle}


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


def _row(name: str, wanted: np.ndarray, logits: np.ndarray) -> dict[str, Any]:
    kl, same = mean_kl(wanted, logits), same_top(wanted, logits)
    ok = bool(np.isfinite(logits).all() and kl <= FURTHEST and same >= LEAST_SAME)
    furthest = largest_difference(wanted, logits)
    return {"name": name, "ok": ok, "kl": kl, "same_top": same, "largest_difference": furthest}


def _whole(driver: Driver, ids: list[int]) -> np.ndarray:
    """All tokens in one step, twice, since a step has fewer wanted rows than tokens."""
    half = len(ids) // 2
    parts = [Part(0, 0, ids, range(half)), Part(1, 0, ids, range(half, len(ids)))]
    return np.concatenate([driver.step([part])[1] for part in parts])


def _chunked(driver: Driver, ids: list[int]) -> np.ndarray:
    cuts = [0, 1, 8, 21, COUNT]
    parts = [Part(1, a, ids[a:b], range(b - a)) for a, b in itertools.pairwise(cuts)]
    return np.concatenate([driver.step([part])[1] for part in parts])


def _decoded(driver: Driver, ids: list[int]) -> np.ndarray:
    return np.concatenate([driver.step([Part(2, at, [token])])[1] for at, token in enumerate(ids)])


def _in_company(driver: Driver, ids: list[int]) -> np.ndarray:
    """Each token as a decode beside others, of which there are more and more; and beside a prefill."""
    found = []
    for at, token in enumerate(ids):
        others = [Part(slot, at, [ids[-1 - at]]) for slot in range(4, 4 + at % 28)]
        prefill = [Part(3, 0, ids[:20], wanted=())] if at % 7 == 6 else []
        found.append(driver.step([Part(0, at, [token]), *others, *prefill])[1][:1])
    return np.concatenate(found)


WAYS: dict[str, Callable[[Driver, list[int]], np.ndarray]] = {
    "prefill": _whole,
    "chunked prefill": _chunked,
    "decode": _decoded,
    "mixed batches": _in_company,
}
