"""Tokens a second of decode and prefill, against the memory bandwidth that is measured in the same run, and torch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from pih_backend_cuda.driver import load_driver

from pih_runtime.plan import Plan
from tests.truth.drive import Driver, Part
from tools.gpu.deployments import Deployment, both
from tools.gpu.running import started

_COPY = 1 << 30  # bytes
_TURNS = 5
_LATE = {"skipped": "no time is left"}


def measured(found: dict[str, Any], deployment: Deployment, sm: str, end: float, *, torch_too: bool) -> None:
    """Rates of the backend, then of torch, put into `found` one by one, while there is time.

    end: on the monotonic clock; what would start later is there as `skipped`.
    """
    bandwidth = _bandwidth() if torch_too else None
    found |= {"model": deployment.name, "bytes_per_second": bandwidth, "decode": [], "prefill": [], "others": []}
    for stored, graphs in itertools.product(both(deployment), (True, False)):
        weights = "bf16" if stored is deployment else stored.weights
        rows: list[dict[str, Any]] = [
            {"weights": weights, "batch": batch, "graphs": graphs} for batch in stored.batches
        ]
        if time.monotonic() > end:  # packing the weights alone takes a while
            found["decode"] += [{**row, **_LATE} for row in rows]
            found["prefill"] += [{"weights": weights, "tokens": stored.limits.tokens, **_LATE}] if graphs else []
            continue
        with started(stored, sm, load_driver(), graphs=graphs) as backend:
            driver = Driver(backend)
            for row in rows:
                found["decode"].append({**row, **_decoded(driver, stored, row["batch"], bandwidth, end)})
            if graphs:
                rate = _LATE if time.monotonic() > end else {"tokens_per_second": _prefill(driver, stored)}
                found["prefill"].append({"weights": weights, "tokens": stored.limits.tokens, **rate})
    found["others"] += [{"name": "torch", "skipped": "--tiny"}] if not torch_too else []
    for row in _others(deployment, end) if torch_too else ():
        found["others"].append(row)


def _decoded(driver: Driver, deployment: Deployment, batch: int, bandwidth: float | None, end: float) -> dict[str, Any]:
    if time.monotonic() > end:
        return _LATE
    rate = _decode(driver, deployment, batch)
    read = _read_by_a_step(driver.backend.plan, batch, deployment.prefix) * rate / batch
    share = read / bandwidth if bandwidth else None
    return {"tokens_per_second": rate, "bytes_per_second": read, "share_of_bandwidth": share}


def _bandwidth() -> float:
    """Bytes read and written by the best copy of a gigabyte on the device, each second."""
    import torch

    source = torch.empty(_COPY, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return 2 * _COPY / best(copy)


def best(action: Callable[[], object]) -> float:
    """Seconds of the quickest of several turns, after one that warms up."""
    action()
    times = []
    for _ in range(_TURNS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def _decode(driver: Driver, deployment: Deployment, batch: int) -> float:
    """Tokens a second of so many sequences, two steps in flight as the engine has them."""
    backend, prefix = driver.backend, deployment.prefix
    ids = [1 + token % 400 for token in range(prefix)]
    size = deployment.limits.tokens
    for slot in range(batch):
        for at in range(0, prefix, size):
            driver.step([Part(slot, at, ids[at : at + size])])
    steps = [
        driver.batch([Part(slot, prefix + at, [-(slot + 1)]) for slot in range(batch)])
        for at in range(deployment.steps)
    ]

    def run() -> None:
        waiting = []
        for step in steps:
            waiting.append(backend.submit(step))
            if len(waiting) == 2:
                backend.wait(waiting.pop(0))
        for ticket in waiting:
            backend.wait(ticket)

    return batch * len(steps) / best(run)


def _prefill(driver: Driver, deployment: Deployment) -> float:
    """Tokens a second of the largest step, of one sequence from its start."""
    ids = [1 + token % 400 for token in range(min(deployment.limits.tokens, deployment.limits.context))]
    step = driver.batch([Part(0, 0, ids)])
    return len(ids) / best(lambda: driver.backend.wait(driver.backend.submit(step)))


def _read_by_a_step(plan: Plan, batch: int, positions: int) -> int:
    """Bytes that a step of decodes reads at least: each weight once, and the sequences' cache."""
    each = sum(cache.nbytes // (cache.pages * cache.page_size) for cache in plan.caches)
    return plan.weight_bytes + batch * positions * each


def _others(deployment: Deployment, end: float) -> Iterator[dict[str, Any]]:
    """The same shape in torch, eager and compiled, and in transformers; what there is no time for says so."""
    from tools.gpu import torch_decoder

    ways = [("torch eager", torch_decoder.eager), ("torch compiled", torch_decoder.compiled)]
    ways.append(("transformers", torch_decoder.transformers))
    for name, make in ways:
        for batch in deployment.batches:
            row: dict[str, Any] = {"name": name, "batch": batch}
            if time.monotonic() > end:
                yield {**row, **_LATE}
                continue
            try:
                step = make(deployment.config(), batch, deployment.prefix, deployment.limits.context)
                yield {**row, "tokens_per_second": batch / best(step)}
            except Exception as problem:  # noqa: BLE001 - of another library: told, and the others are still measured
                yield {**row, "skipped": f"{type(problem).__name__}: {problem}"[:200]}
