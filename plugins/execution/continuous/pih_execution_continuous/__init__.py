"""execution.engine: continuous batching over one backend, with chunked prefill and prefix reuse."""

from __future__ import annotations

from pih_execution_continuous.engine import ContinuousEngine
from pih_runtime.contracts import Backend, Context
from pih_runtime.errors import WorkerError

__all__ = ["start"]
QUEUE = 256  # requests waiting or running at once


def start(context: Context) -> ContinuousEngine:
    """Check that every sequence of a step can decode, then start the engine's thread."""
    settings = context.counts(queue=QUEUE)
    backend: Backend = context.provider("backend.device")
    limits = backend.plan.limits
    if limits.tokens < limits.seqs:
        raise WorkerError(
            f"a step of {limits.tokens} tokens cannot decode {limits.seqs} sequences",
            where="plan.json",
            fix="raise limits.tokens to at least limits.batch in the profile",
        )
    return ContinuousEngine(
        backend=backend,
        pool=context.provider("memory.pages"),
        text=context.provider("model.text"),
        queue=settings["queue"],
        fail=context.fail,
    )
