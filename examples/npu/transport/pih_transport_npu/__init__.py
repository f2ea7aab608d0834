"""transport/npu: `start` returns the `contracts.Transport` of as many ranks as the lock has devices.

Imports `pih_runtime` and the standard library; wheels beside that are named in plugin.toml.
"""

from __future__ import annotations

from pih_runtime.contracts import Context
from pih_transport_npu.transport import Transport


def start(context: Context) -> Transport:
    """Nothing is taken before ranks join."""
    return Transport(context.ranks)
