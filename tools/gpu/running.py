"""A deployment on the GPU: its backend over the carried cubin, and which entries of it were launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pih_backend_cuda.backend import CudaBackend
from pih_backend_cuda.device import open_device
from pih_backend_cuda.driver import Driver, load_driver
from pih_backend_cuda.pack import read_pack
from pih_backend_cuda_graphs import CudaGraphs

from tools.gpu.deployments import Deployment, Seeded


class Watched:
    """A driver that notes the name of each kernel entry as it is launched."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._names: dict[int | None, str] = {}
        self.launched: Counter[str] = Counter()

    def declare(self, functions: Any) -> None:
        """As the driver's own."""
        self._driver.declare(functions)

    def __call__(self, name: str, *arguments: Any) -> None:
        """As the driver's own."""
        self._driver(name, *arguments)
        if name == "cuModuleGetFunction":
            self._names[arguments[0]._obj.value] = arguments[2].decode()  # noqa: SLF001 - what byref refers to
        elif name == "cuLaunchKernel":
            self.launched[self._names[arguments[0].value]] += 1


@contextmanager
def running(deployment: Deployment, sm: str, *, graphs: bool) -> Iterator[tuple[CudaBackend, Watched]]:
    """The backend and its watched driver; stopped at the end."""
    watched = Watched(load_driver())
    with started(deployment, sm, watched, graphs=graphs) as backend:
        yield backend, watched


@contextmanager
def started(deployment: Deployment, sm: str, driver: Any, *, graphs: bool) -> Iterator[CudaBackend]:
    """The backend over this driver; stopped at the end."""
    lowered = deployment.lowered("kernels/cuda", sm)
    pack = read_pack(deployment.cubin(sm))
    weights = Seeded(lowered, deployment.checkpoint(seeded=True))
    device = open_device(driver, sm, 0, pack.cuda)
    backend = CudaBackend(lowered.plan, pack, weights, driver, device, CudaGraphs() if graphs else None)
    try:
        yield backend
    finally:
        backend.stop()
