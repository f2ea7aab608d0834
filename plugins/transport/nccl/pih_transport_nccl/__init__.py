"""transport.collectives by NCCL, between ranks that are threads of one process, each with a device of its own.

Imports `pih_runtime` and the standard library; the library itself is in the bundle, where this plugin's wheel had it.
"""

from __future__ import annotations

from pih_runtime.contracts import Context
from pih_transport_nccl.library import load
from pih_transport_nccl.transport import Transport


def start(context: Context) -> Transport:
    """Open the library. Nothing is taken of any device before ranks join."""
    library = load(context.root / "lib/nvidia/nccl/lib/libnccl.so.2")
    context.log(f"transport/nccl: NCCL {library.version}, {context.ranks} ranks")
    return Transport(library, context.ranks)
