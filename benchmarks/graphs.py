"""Host's work for a step of decodes, with and without CUDA graphs: processor time of `submit` on the software GPU.

The software GPU only queues what is submitted; what is measured is Python, ctypes and that queue. A ratio, since the
time itself is another one with a real driver.

    PYTHONPATH=. .venv-dev/bin/python benchmarks/graphs.py [--json]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pih_runtime.plan import Limits
from tests.truth import models
from tests.truth.drive import Driver, Part

LAYERS, STEPS, BATCHES = 28, 12, (1, 8)


def submitting(driver: Driver, batch: int) -> float:
    """Seconds of this thread's processor time for one submit, the least of several."""
    found = []
    for at in range(STEPS):
        step = driver.batch([Part(slot, 4 + at, [-(slot + 1)]) for slot in range(batch)])
        began = time.thread_time()
        ticket = driver.backend.submit(step)
        found.append(time.thread_time() - began)
        driver.backend.wait(ticket)
    return min(found)


def main() -> int:
    checkpoint = models.qwen3_checkpoint({**models.TINY_QWEN3, "num_hidden_layers": LAYERS})
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for graphs in (False, True):
            backend = models.cuda_backend("sm_89", Path(folder), graphs=graphs)(
                checkpoint, models.graph_of("qwen3"), Limits(tokens=32, seqs=8, context=64)
            )
            driver = Driver(backend)
            driver.step([Part(slot, 0, [5, 6, 7, 8]) for slot in range(max(BATCHES))])
            rows.append({batch: submitting(driver, batch) for batch in BATCHES})
            calls = len(backend.plan.calls)
            backend.stop()
    ratios = {batch: rows[0][batch] / rows[1][batch] for batch in BATCHES}
    if "--json" in sys.argv:
        print(json.dumps({"calls": calls, "without": rows[0], "with": rows[1], "ratio": ratios}))
        return 0
    for batch, ratio in ratios.items():
        each, one = (row[batch] * 1e6 for row in rows)
        print(f"batch {batch}: {each:.0f} us a step of {calls} launches, {one:.0f} us as one graph: 1/{ratio:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
