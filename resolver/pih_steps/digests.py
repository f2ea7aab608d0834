"""Step `digests`: the chunk table of the packed weights, by which a worker checks what it maps.

params: chunk, in bytes. steps: weights. The table's form is that of `pih_runtime.digests`.
"""

from __future__ import annotations

import mmap

from pih_runtime import digests
from pih_steps.spec import Spec, param, step


def run(spec: Spec) -> None:
    """Write the table."""
    chunk = int(param(spec, "chunk"))
    with (
        step(spec, "weights").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        table = digests.table_of(data, chunk)
    spec.output.write_bytes(digests.to_text(table))
