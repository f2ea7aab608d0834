"""Backend for one NVIDIA GPU: a plan, a kernel pack of one cubin, and the driver.

Imports `pih_runtime` and the standard library only; of the host it needs `libcuda.so.1`, which the driver brings.
`start` finds the device that the lock is for, takes exactly the memory that the plan asks for, and returns the
`contracts.Backend`.
"""

from __future__ import annotations

from pih_backend_cuda.backend import CudaBackend
from pih_backend_cuda.device import open_device, released_on_failure
from pih_backend_cuda.driver import load_driver
from pih_backend_cuda.pack import read_pack
from pih_runtime import plan as plans
from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError


def start(context: Context) -> CudaBackend:
    """Find the device, load the cubin, bind every call; whatever was acquired is released where that fails."""
    plan = plans.read(context.root)
    wanted = context.lock["target"]["device"]
    if wanted["count"] != 1:
        raise WorkerError(
            f"the lock is for {wanted['count']} devices, and this worker runs one rank",
            fix="lock the profile for one device: device.count = 1",
        )
    pack = read_pack(context.root / "kernels")
    if pack.sm != wanted["sm"]:
        raise WorkerError(
            f"the kernel pack is for {pack.sm}, the lock says {wanted['sm']}", fix="build the bundle again"
        )
    driver = load_driver()
    weights = context.provider("storage.weights")
    graphs = context.provider("backend.graphs") if context.served("backend.graphs") else None
    device = open_device(driver, wanted["sm"], int(context.lock["budget"]["device"]), pack.cuda)
    with released_on_failure(device):
        backend = CudaBackend(plan, pack, weights, driver, device, graphs)
    context.log(
        f"backend/cuda: {device.name}, {pack.sm}, CUDA {device.cuda}, {len(plan.calls)} calls a step"
        + (", of decodes as graphs" if graphs else "")
    )
    return backend
