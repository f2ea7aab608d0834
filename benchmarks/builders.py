"""The builders side by side, in one run: no-op, and after a change of everything, a port, a kernel, a model plugin.

Works on a copy of the source tree, with the user's store. Seconds are of `pih build --builder NAME --json`; steps are
those that ran, so that a change can be seen to rebuild what it must and no more.

    .venv/bin/python benchmarks/builders.py [--profile profiles/smollm2-cpu.toml] [--builders embedded,nix] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDS = {"embedded": "python3", "bazel": "bazel", "nix": "nix-build"}


def copied(target: Path) -> Path:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name, follow_symlinks=False)
    # a flake sees tracked files alone
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=target, check=True)
    return target


def build(tree: Path, profile: str, builder: str) -> tuple[float, list[str]]:
    started = time.perf_counter()
    command = [str(tree / "pih"), "build", "--profile", profile, "--builder", builder, "--json"]
    out = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return time.perf_counter() - started, json.loads(out)["steps_run"]


def commented(name: str, mark: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        path = tree / name
        path.write_text(f"{path.read_text()}{mark} {secrets.token_hex(8)}\n")

    return change


def another_port(profile: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        path = tree / profile
        path.write_text(path.read_text().replace("port = 8000", f"port = {9000 + secrets.randbelow(50000)}"))
        subprocess.run(
            [str(tree / "pih"), "lock", "--profile", profile], cwd=tree, check=True, stdout=subprocess.DEVNULL
        )

    return change


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="profiles/smollm2-cpu.toml")
    parser.add_argument("--builders", default=",".join(NEEDS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    changes = {
        "every step": commented("resolver/pih_steps/spec.py", "#"),
        "no-op": lambda tree: None,  # noqa: ARG005 - nothing is changed
        "service port": another_port(options.profile),
        "one kernel source": commented("kernels/cpu/silu_mul.h", "//"),
        "one model file": commented("plugins/model/llama/pih_model_llama/__init__.py", "#"),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder) / "pih")
        wanted = options.builders.split(",")
        for name, change in changes.items():
            change(tree)
            for builder in wanted:
                if shutil.which(NEEDS[builder]) is None:
                    rows.append({"change": name, "builder": builder, "skipped": f"{NEEDS[builder]} is not installed"})
                    continue
                seconds, steps = build(tree, options.profile, builder)
                rows.append({"change": name, "builder": builder, "seconds": round(seconds, 2), "steps": steps})
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "rows": rows}, indent=2))
        return
    print(f"load average {os.getloadavg()[0]:.1f}")
    for row in rows:
        what = row.get("skipped") or f"{row['seconds']:7.2f} s  {len(row['steps'])} steps: {', '.join(row['steps'])}"
        print(f"{row['change']:18} {row['builder']:9} {what}")


if __name__ == "__main__":
    sys.exit(main())
