"""Makes the folder for a machine with a GPU: see tools/gpu/pack. No GPU, no driver and no torch are needed here."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pih import pins
from pih.build import fetch, graph, placing, store
from pih.cli._errors import of_system
from pih.lock import Artifact
from pih_runtime.errors import BuildError, PihError, UsageError
from tools.gpu.deployments import FULL, MODEL, PLUGINS, ROOT, SMS, TINY, Deployment, both

_NVRTC = "nvidia-cuda-nvrtc"
_TREES = (
    "runtime/pih_runtime", "resolver/pih_steps", MODEL.relative_to(ROOT).as_posix(), "tools/gpu",
    "tests/truth/drive.py", "tests/truth/compare.py", "tests/truth/ways.py",
    *(f"plugins/{plugin}" for plugin in PLUGINS),
)  # fmt: skip


def main() -> int:
    """Write the folder; one line for each cubin."""
    parser = argparse.ArgumentParser(prog="tools/gpu/pack")
    parser.add_argument("output", type=Path)
    parser.add_argument("--tiny", action="store_true", help="without the cubins of Qwen3-0.6B's shape")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with placing.placed(arguments.output, _is_new) as made:
            _fill(made, both(TINY) if arguments.tiny else (*both(TINY), *both(FULL)))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (PihError, OSError) as problem:
        told = problem if isinstance(problem, PihError) else of_system(problem)
        print(f"tools/gpu/pack: {told}", file=sys.stderr)
        return told.exit_code
    check = [f"./{arguments.output.name}/tools/gpu/check.sh", *(["--tiny"] if arguments.tiny else [])]
    print(f"carry {shlex.quote(str(arguments.output))} to the machine, then there: {shlex.join(check)}")
    return 0


def _is_new(output: Path) -> None:
    if os.path.lexists(output):
        raise UsageError("it is there already", where=str(output), fix="name a new folder")


def _fill(folder: Path, deployments: Iterable[Deployment]) -> None:
    for name in _TREES:
        for below, source in graph.files_of(ROOT / name):
            target = folder / name / below
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    wheel = _wheel()
    for deployment in deployments:
        for sm in SMS:
            made = folder / deployment.cubin(sm).relative_to(ROOT)
            _compile(deployment, sm, wheel, made)
            print(f"{made.name}: {(made / 'pack.cubin').stat().st_size / 1e3:.0f} kB")


def _wheel() -> Path:
    pin: Artifact | None = pins.load(ROOT).find("wheel", _NVRTC)
    assert pin is not None, "the CUDA pack's compiler is pinned"
    own = store.open_store(store.default_root(os.environ))
    return fetch.one(own, lock_folder=ROOT, environment=os.environ, offline=False, listener=lambda _: None)(pin)


def _compile(deployment: Deployment, sm: str, wheel: Path, output: Path) -> None:
    """The build step, in a process of its own as any step."""
    bindings = [asdict(binding) for binding in deployment.lowered("kernels/cuda", sm).bindings]
    output.parent.mkdir(parents=True, exist_ok=True)
    described = output.with_suffix(".json")
    described.write_text(
        json.dumps(
            {
                "params": {"isa": sm, "bindings": bindings},
                "artifacts": {_NVRTC: str(wheel)},
                "trees": {"kernels/cuda": str(ROOT / "kernels/cuda")},
                "steps": {}, "tools": [], "output": str(output),
            }
        )
    )  # fmt: skip
    # Ctrl-C is for this process alone, which ends that one.
    step = [sys.executable, "-I", ROOT / "resolver/pih_steps", "cubin", described]
    done = subprocess.run(step, stderr=subprocess.PIPE, text=True, check=False, start_new_session=True)
    if done.returncode:
        raise BuildError(f"no cubin of {deployment.name} for {sm}:\n{done.stderr.strip()}")
    described.unlink()


if __name__ == "__main__":
    sys.exit(main())
