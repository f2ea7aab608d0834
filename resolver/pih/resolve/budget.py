"""The memory budget: what the worker will allocate, in bytes, against what the target gives."""

from __future__ import annotations

from pih.catalog import Manifest
from pih.lock import Budget, Limits, Target
from pih.resolve.lowering import Lowered
from pih_runtime.errors import ResolutionError

# Python itself, its loaded libraries, pih_runtime, the parsed lock, plan and bundle list, at ready.
INTERPRETER_BYTES = 24_000_000


def budget_of(lowered: Lowered, plugins: tuple[Manifest, ...], target: Target) -> Budget:
    """The sums; `check` judges them. Activations: the arena, and scratch for each thread."""
    host = INTERPRETER_BYTES + sum(plugin.runtime.host_bytes for plugin in plugins if plugin.runtime is not None)
    activations = lowered.arena + lowered.scratch * target.threads
    return Budget(
        weights=lowered.weights,
        kv=lowered.kv,
        activations=activations,
        spill=0,
        host=host,
        total=lowered.weights + lowered.kv + activations + host,
        limit=target.memory_bytes,
    )


def check(budget: Budget, limits: Limits, reason: str) -> None:
    """Refuse a deployment that cannot fit, with the numbers and the nearest fits. reason: the profile's memory line."""
    if budget.total <= budget.limit:
        return
    fits = [f'target.memory = "{_round_up(budget.total)}"', *_smaller_caches(budget, limits)]
    raise ResolutionError(
        f"Because {reason},\n"
        f"  and weights {_mib(budget.weights)} + KV cache {_mib(budget.kv)} + activations {_mib(budget.activations)} + "
        f"host {_mib(budget.host)} = {_mib(budget.total)}.\n"
        f"  So it is {_mib(budget.total - budget.limit)} too large.",
        fix="the nearest fits are " + ", or ".join(fits),
    )


def _smaller_caches(budget: Budget, limits: Limits) -> list[str]:
    """Profile lines that shrink the KV cache enough, where it alone can make the difference."""
    room = budget.limit - (budget.total - budget.kv)
    positions = limits.context * limits.batch
    if room <= 0 or not budget.kv:
        return []
    affordable = room * positions // budget.kv
    found = []
    context = affordable // limits.batch // 16 * 16
    if context >= 16:
        found.append(f"limits.context = {context}")
    batch = affordable // limits.context
    if batch >= 1:
        found.append(f"limits.batch = {batch}")
    if limits.kv_dtype == "f32" and 2 * affordable >= positions:
        found.append('limits.kv_dtype = "bf16"')
    return found


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def _round_up(count: int) -> str:
    return f"{-(-count // 2**20)} MiB"
