"""Correctness and speed of the CUDA backend on the GPU that is here, as JSON: see tools/gpu/check.sh.

Correctness first: a model whose tokens are wrong has no speed. Exit code 0; 1 for a wrong result; 2 for an output that
cannot be written, before anything runs; 9 where it cannot run, or not to its end. What was found until then is kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import platform
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from pih_runtime.errors import PihError, WorkerError, described
from tools.gpu import output
from tools.gpu.deployments import FULL, SMS, TINY, both

SCHEMA = 1
VERDICTS = {0: "right", 1: "WRONG", WorkerError.exit_code: "not to its end"}


def main() -> int:
    """Run what there is time for, and print or write the result."""
    parser = argparse.ArgumentParser(prog="check.sh")
    parser.add_argument("--output", type=Path, help="write the result there; without it, print it")
    parser.add_argument("--tiny", action="store_true", help="measure the tiny model instead, and nothing of torch")
    parser.add_argument("--seconds", type=float, default=300.0, help="measure nothing more after so long")
    arguments = parser.parse_args()
    if not 0 <= arguments.seconds < math.inf:
        parser.error("--seconds takes a number of seconds, 0 or more")
    for number in (signal.SIGTERM, signal.SIGHUP):  # of timeout, and of a connection that is lost
        signal.signal(number, _broken_off)
    try:
        _check_modules()
        with output.opened(arguments.output) as write:
            found, code = _checked(arguments.tiny, arguments.seconds)
            write(json.dumps(found, indent=1) + "\n")
    except PihError as problem:
        print(f"check.sh: {problem}", file=sys.stderr)
        return problem.exit_code
    except KeyboardInterrupt as problem:  # before anything was found
        print(f"check.sh: {problem or 'interrupted'}", file=sys.stderr)
        return WorkerError.exit_code
    if arguments.output:
        print(f"{VERDICTS[code]}: {arguments.output}")
    return code


def _broken_off(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")


def _checked(tiny: bool, seconds: float) -> tuple[dict[str, Any], int]:
    """What was found, and the exit code. Raises PihError where nothing can be."""
    began = time.monotonic()
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "device": _device(tiny=tiny),
        "correctness": [],
        "ok": False,
        "benchmark": {"skipped": "correctness is not known"},
        "error": None,
    }
    _check_torch(cuda=not tiny)
    code = 0
    try:
        _fill(found, tiny, began + seconds)
    except KeyboardInterrupt as problem:
        found["error"], code = str(problem) or "interrupted", WorkerError.exit_code
        print(f"check.sh: {found['error']}", file=sys.stderr)
    except Exception as problem:  # noqa: BLE001 - whatever it is, what was found before it is not lost
        if not isinstance(problem, PihError):
            traceback.print_exc()
        print(f"check.sh: {described(problem)}", file=sys.stderr)
        found["error"], code = described(problem), WorkerError.exit_code
    found["seconds"] = round(time.monotonic() - began, 1)
    wrong = not all(row["ok"] for row in found["correctness"])
    return found, 1 if wrong else code


def _fill(found: dict[str, Any], tiny: bool, end: float) -> None:
    """Each row goes to the result as soon as it is there."""
    from tools.gpu import bench, truth

    sm = found["device"]["sm"]
    large = () if tiny else truth.across(FULL, sm, 3 * truth.PIECE)
    for row in itertools.chain(truth.every_way(TINY, sm), large):
        found["correctness"].append(row)
    found["ok"] = all(row["ok"] for row in found["correctness"])
    found["benchmark"] = {} if found["ok"] else {"skipped": "results are wrong"}
    if found["ok"]:
        bench.measured(found["benchmark"], TINY if tiny else FULL, sm, end, torch_too=not tiny)


def _check_modules() -> None:
    """Raises WorkerError where Python lacks what the check imports."""
    for name in ("numpy", "torch"):
        if importlib.util.find_spec(name) is None:
            fix = "install it, or set PIH_PYTHON to a Python that has it"
            raise WorkerError(f"{sys.executable} has no {name}", fix=fix)


def _check_torch(*, cuda: bool) -> None:
    """Raises WorkerError before the minutes that a run takes, where torch could not be measured after them."""
    try:
        import torch
    except Exception as problem:
        what = f"torch is installed and does not start: {described(problem)}"
        raise WorkerError(what, fix="install it again, or set PIH_PYTHON to a Python whose torch works") from problem
    if cuda and not torch.cuda.is_available():
        raise WorkerError(
            f"torch {torch.__version__} sees no GPU",
            fix="install a torch that is made for CUDA, or measure the tiny model and nothing of torch: --tiny",
        )


def _check_cubins(*, tiny: bool) -> None:
    """Raises WorkerError where the folder was not made for what is asked of it."""
    for deployment in (*both(TINY), *(() if tiny else both(FULL))):
        missing = [sm for sm in SMS if not (deployment.cubin(sm) / "pack.json").exists()]
        if missing and deployment.name.startswith(TINY.name):
            raise WorkerError("no cubins are here: this is not a carried folder", fix="make one: tools/gpu/pack FOLDER")
        if missing:
            raise WorkerError(
                f"the folder has no cubins of {deployment.name} for {' and '.join(missing)}",
                fix="make one without --tiny: tools/gpu/pack FOLDER, or check the tiny model alone: --tiny",
            )


def _device(*, tiny: bool) -> dict[str, str]:
    """Name, compute capability and CUDA version of the first device that cubins were carried for."""
    from pih_backend_cuda.device import open_device  # its package imports numpy
    from pih_backend_cuda.driver import load_driver

    driver, reasons = load_driver(), []
    _check_cubins(tiny=tiny)
    for sm in SMS:
        try:
            device = open_device(driver, sm, 0, 13000)
        except WorkerError as problem:
            reasons.append(problem.what)
            continue
        found = {"name": device.name, "sm": sm, "cuda": device.cuda}
        device.close()
        return found
    raise WorkerError("; ".join(reasons), fix=f"run it on a GPU of {' or '.join(SMS)}")


if __name__ == "__main__":
    sys.exit(main())
