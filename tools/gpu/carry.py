"""Makes the folder for a machine with a GPU: see tools/gpu/pack. No GPU, no driver and no torch are needed here."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from pih import pins
from pih.build import fetch, store
from pih.lock import Artifact
from tools.gpu.deployments import FULL, MODEL, PLUGINS, ROOT, SMS, TINY, Deployment, both

_NVRTC = "nvidia-cuda-nvrtc"
_TREES = (
    "runtime/pih_runtime", "resolver/pih_steps", MODEL.relative_to(ROOT).as_posix(), "tools/gpu",
    "tests/truth/drive.py", "tests/truth/compare.py", *(f"plugins/{plugin}" for plugin in PLUGINS),
)  # fmt: skip


def main() -> int:
    """Write the folder; one line for each cubin."""
    parser = argparse.ArgumentParser(prog="tools/gpu/pack")
    parser.add_argument("output", type=Path)
    parser.add_argument("--tiny", action="store_true", help="without the cubins of Qwen3-0.6B's shape")
    arguments = parser.parse_args()
    if arguments.output.exists():
        print(f"{arguments.output} is there already: name a new folder", file=sys.stderr)
        return 2
    beside = arguments.output.with_name(f".{arguments.output.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    for tree in _TREES:
        target = beside / tree
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / tree).is_dir():
            shutil.copytree(ROOT / tree, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / tree, target)
    wheel = _wheel()
    for deployment in both(TINY) if arguments.tiny else (*both(TINY), *both(FULL)):
        for sm in SMS:
            made = beside / deployment.cubin(sm).relative_to(ROOT)
            _compile(deployment, sm, wheel, made)
            print(f"{made.name}: {(made / 'pack.cubin').stat().st_size / 1e3:.0f} kB")
    beside.rename(arguments.output)
    print(f"carry {arguments.output} to the machine, then there: {arguments.output.name}/tools/gpu/check.sh")
    return 0


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
    subprocess.run([sys.executable, "-I", ROOT / "resolver/pih_steps", "cubin", described], check=True)
    described.unlink()


if __name__ == "__main__":
    sys.exit(main())
