"""The memory budget: what the worker will allocate, in bytes, against what the target gives.

Where it does not fit, `fits` computes the nearest deployments that do.
"""

from __future__ import annotations

from collections.abc import Callable

from pih.catalog import Manifest
from pih.lock import Budget, Limits, Target
from pih.resolve.fits import Levers, Measure, Size, memory, nearest, over
from pih.resolve.lowering import Lowered
from pih.resolve.target import wants_devices
from pih_runtime.errors import ResolutionError

# Python itself, its loaded libraries, pih_runtime, the parsed lock, plan and bundle list, at ready.
INTERPRETER_BYTES = 24_000_000


def budget_of(lowered: Lowered, plugins: tuple[Manifest, ...], target: Target, limits: Limits) -> Budget:
    """The sums; `check` judges them.

    Activations: the arena, and scratch for each share of a call that needs it, which are rows: no more than threads.
    Weights, caches and activations are in the memory of the devices where the backend is made for devices.
    """
    halves = [plugin.runtime for plugin in plugins if plugin.runtime is not None]
    host = INTERPRETER_BYTES + sum(half.host_bytes + half.host_bytes_per_token * lowered.vocab for half in halves)
    activations = lowered.arena + lowered.scratch * min(target.threads, limits.batch) + lowered.shared_scratch
    computed = lowered.weights + lowered.kv + activations + sum(half.device_bytes for half in halves)
    device = (
        target.device if any(plugin.kind == "backend" and wants_devices(plugin.target) for plugin in plugins) else None
    )
    return Budget(
        weights=lowered.weights,
        kv=lowered.kv,
        activations=activations,
        spill=limits.spill,
        host=host,
        total=host + limits.spill + (0 if device else computed),
        limit=target.memory_bytes,
        device=computed if device else 0,
        device_limit=device.memory_bytes if device else 0,
    )


def check(budget: Budget, size: Size, measure: Measure, levers: Callable[[], Levers], reasons: tuple[str, str]) -> None:
    """Refuse a deployment that cannot fit, with the numbers and the nearest fits.

    measure: the budget of the same deployment at another size. levers: found where they are needed. reasons: the
    profile's lines of the host's memory and of the devices'.
    """
    if not over(budget):
        return
    on_device = budget.device > budget.device_limit
    held = {"weights": budget.weights, "KV cache": budget.kv, "activations": budget.activations}
    if on_device and (own := budget.device - sum(held.values())):
        held["plugins"] = own
    beside = {"spill": budget.spill} if budget.spill else {}
    parts = held if on_device else {**({} if budget.device else held), **beside, "host": budget.host}
    total, limit = (budget.device, budget.device_limit) if on_device else (budget.total, budget.limit)
    terms = " + ".join(f"{name} {_mib(nbytes)}" for name, nbytes in parts.items())
    larger = [
        *([f"device.memory = {memory(budget.device)}"] if on_device else []),
        *([f"target.memory = {memory(budget.total)}"] if budget.total > budget.limit else []),
    ]
    fits = [" with ".join(larger), *nearest(size, measure, levers())]
    raise ResolutionError(
        f"Because {reasons[on_device]},\n"
        f"  and {terms} = {_mib(total)}{' on each device' if on_device else ''}.\n"
        f"  So it is {_mib(total - limit)} too large.",
        fix=f"the nearest {'fits are' if len(fits) > 1 else 'fit is'} {', or '.join(fits)}",
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 2**20 // 10 else f"{nbytes / 2**10:.1f} KiB"
