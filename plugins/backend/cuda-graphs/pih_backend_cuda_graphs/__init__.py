"""backend.graphs: the launches of a step of decodes, recorded once for each size of batch and replayed as one.

Imports `pih_runtime` and the standard library. It takes nothing of the device before `backend/cuda` hands its own over.
"""

from __future__ import annotations

from pih_backend_cuda_graphs.graphs import CudaGraphs
from pih_runtime.contracts import Context


def start(_context: Context) -> CudaGraphs:
    """Nothing to do yet."""
    return CudaGraphs()
