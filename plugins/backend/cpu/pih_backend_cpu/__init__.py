"""Backend for the CPU: a plan, a kernel pack and a team of threads.

Imports `pih_runtime` and the standard library only. `start` reads the bundle's plan and pack, takes exactly the
memory that the plan asks for, and returns the `contracts.Backend`.
"""

from __future__ import annotations

from pih_backend_cpu.backend import CpuBackend
from pih_backend_cpu.pack import load_pack
from pih_runtime import plan as plans
from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError


def start(context: Context) -> CpuBackend:
    """Load plan and pack from the bundle, bind every call, start the threads."""
    host = context.provider("platform.host")
    plan = plans.read(context.root)
    pack = load_pack(context.root / "kernels" / "pack.so")
    wanted = context.lock["target"]["isa"]
    if pack.isa != wanted:
        raise WorkerError(f"the kernel pack is for {pack.isa}, the lock says {wanted}", fix="build the bundle again")
    if wanted not in host.isa:
        raise WorkerError(f"this CPU lacks {wanted}", fix="lock the profile for this host's ISA: see `pih doctor`")
    backend = CpuBackend(plan, pack, context.provider("storage.weights"), host.threads)
    context.log(f"backend/cpu: {wanted}, {host.threads} threads, {len(plan.calls)} calls a step")
    return backend
