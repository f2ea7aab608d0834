"""Correctness and speed of the CUDA backend on the GPU that is here, as JSON: see tools/gpu/check.sh.

Correctness first: a model whose tokens are wrong has no speed. Exit code 0; 1 for a wrong result; 9 where it cannot
run, with the reason on stderr.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

from pih_backend_cuda.device import open_device
from pih_backend_cuda.driver import load_driver

from pih_runtime.errors import PihError, WorkerError
from tools.gpu.deployments import FULL, SMS, TINY

SCHEMA = 1


def main() -> int:
    """Run what there is time for, and print or write the result."""
    parser = argparse.ArgumentParser(prog="check.sh")
    parser.add_argument("--output", type=Path, help="write the result there; without it, print it")
    parser.add_argument("--tiny", action="store_true", help="measure the tiny model too, and nothing of torch")
    parser.add_argument("--seconds", type=float, default=300.0, help="start nothing more after so long")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        found = _found(arguments.tiny, began + arguments.seconds)
    except PihError as problem:
        print(f"check.sh: {problem}", file=sys.stderr)
        return problem.exit_code
    found["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(found, indent=1) + "\n"
    if arguments.output:
        arguments.output.write_text(text)
        print(f"{'right' if found['ok'] else 'WRONG'}: {arguments.output}")
    else:
        print(text, end="")
    return 0 if found["ok"] else 1


def _found(tiny: bool, end: float) -> dict[str, Any]:
    from tools.gpu import bench, truth

    name, sm, cuda = _device()
    truths = truth.checks(sm)
    ok = all(row["ok"] for row in truths)
    rates = bench.measured(TINY if tiny else FULL, sm, end, torch_too=not tiny) if ok else None
    return {
        "schema": SCHEMA,
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "device": {"name": name, "sm": sm, "cuda": cuda},
        "correctness": truths,
        "ok": ok,
        "benchmark": rates or {"skipped": "results are wrong"},
    }


def _device() -> tuple[str, str, str]:
    """Name, compute capability and CUDA version of the first device that cubins were carried for."""
    driver, reasons = load_driver(), []
    for sm in SMS:
        if not (TINY.cubin(sm) / "pack.json").exists():
            raise WorkerError("no cubins are here: this is not a carried folder", fix="make one: tools/gpu/pack FOLDER")
        try:
            device = open_device(driver, sm, 0, 13000)
        except WorkerError as problem:
            reasons.append(problem.what)
            continue
        found = (device.name, sm, device.cuda)
        device.close()
        return found
    raise WorkerError("; ".join(reasons), fix=f"run it on a GPU of {' or '.join(SMS)}")


if __name__ == "__main__":
    sys.exit(main())
