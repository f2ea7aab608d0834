"""The builders side by side, in one run: cold, no-op, and after a change of a port, a kernel, a model plugin.

Everything lies in one temporary folder: a copy of the source tree, a store with links to the user's artifacts, the
outputs of Bazel and of Nix. Cold is with all artifacts handed over and nothing built. Seconds are of
`pih build --builder NAME`, by the clock and of processors, Bazel's server included; steps are those that ran.

    .venv/bin/python benchmarks/builders.py [--profile profiles/smollm2-cpu.toml] [--builders embedded,nix] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NEEDS = {"embedded": "python3", "bazel": "bazel", "nix": "nix-build"}
# What is appended to a source of a pack; a cubin takes no entry that nothing calls.
KERNELS = {
    "kernels/cpu": ("kernels/cpu/pack.h", "PIH_EXPORT int pih_{}(void) {{ return 1; }}"),
    "kernels/cuda": ("kernels/cuda/pack.cuh", "__constant__ int pih_{} = 1;"),
}
REPEATS = 3  # of what changes nothing: the least counts
TICKS = os.sysconf("SC_CLK_TCK")
NIX = """experimental-features = nix-command flakes
build-users-group =
substituters =
sandbox = true
sandbox-fallback = false
"""


def copied(target: Path) -> Path:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name, follow_symlinks=False)
    # a flake sees tracked files alone
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=target, check=True)
    return target


def surroundings(folder: Path) -> dict[str, str]:
    """An environment in which no builder has built anything."""
    store = subprocess.run([str(ROOT / "pih"), "store", "path"], stdout=subprocess.PIPE, text=True, check=True).stdout
    places = {name: folder / name for name in ("store", "bin", "conf", "nix", "state", "log")}
    for place in places.values():
        place.mkdir()
    (places["conf"] / "nix.conf").write_text(NIX)
    bazel = places["bin"] / "bazel"
    bazel.write_text(f'#!/bin/sh\nexec {shutil.which("bazel")} --output_user_root={folder}/bazel "$@"\n')
    bazel.chmod(0o755)
    return os.environ | {
        "PATH": f"{places['bin'] if shutil.which('bazel') else ''}:{os.environ['PATH']}",
        "PIH_STORE": str(places["store"]),
        "PIH_MIRROR": f"{store.strip()}/sha256",
        "NIX_CONF_DIR": str(places["conf"]),
        "NIX_STORE_DIR": str(places["nix"]),
        "NIX_STATE_DIR": str(places["state"]),
        "NIX_LOG_DIR": str(places["log"]),
    }


def processors(folder: Path) -> float:
    """Seconds of processors so far: of this program's children, and of Bazel's server with its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    for path in folder.glob("bazel/*/server/server.pid.txt"):
        fields = Path("/proc", path.read_text().strip(), "stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / TICKS
    return total


def build(tree: Path, profile: str, builder: str, environment: dict[str, str]) -> dict[str, Any]:
    cpu, started = processors(tree.parent), time.perf_counter()
    command = [str(tree / "pih"), "build", "--profile", profile, "--builder", builder, "--offline", "--json"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    answer = json.loads(done.stdout)
    spent = {"seconds": time.perf_counter() - started, "cpu_seconds": processors(tree.parent) - cpu}
    rounded = {key: round(value, 2) for key, value in spent.items()}
    return {**rounded, "steps": answer["steps_run"], "digest": answer["digest"]}


def appended(name: str, mark: str) -> Callable[[Path, dict[str, str]], None]:
    def change(tree: Path, _environment: dict[str, str]) -> None:
        path = tree / name
        path.write_text(f"{path.read_text()}{mark.format(secrets.token_hex(8))}\n")

    return change


def another_port(profile: str) -> Callable[[Path, dict[str, str]], None]:
    def change(tree: Path, environment: dict[str, str]) -> None:
        path = tree / profile
        path.write_text(path.read_text().replace("port = 8000", f"port = {9000 + secrets.randbelow(50000)}"))
        command = [str(tree / "pih"), "lock", "--profile", profile]
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)

    return change


def measured(folder: Path, profile: str, builders: list[str]) -> list[dict[str, Any]]:
    tree, environment = copied(folder / "pih"), surroundings(folder)
    lock = json.loads((tree / profile).with_suffix(".lock.json").read_bytes())
    plugins, model = [plugin["id"] for plugin in lock["plugins"]], lock["model"]["plugin"]
    changes: dict[str, Callable[[Path, dict[str, str]], None] | None] = {
        "cold": None,
        "no-op": None,
        "a service port": another_port(profile),
        "a kernel": appended(*KERNELS[next(name for name in plugins if name.startswith("kernels/"))]),
        "a model plugin": appended(f"plugins/{model}/pih_{model.replace('/', '_')}/__init__.py", "# {}"),
    }
    for builder in builders:
        own = [] if builder == "embedded" else ["--builder", builder]
        command = [str(tree / "pih"), "fetch", "--profile", profile, "--offline", *own]
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
    rows = []
    for name, change in changes.items():
        if change:
            change(tree, environment)
        for builder in builders:
            runs = [build(tree, profile, builder, environment) for _ in range(REPEATS if name == "no-op" else 1)]
            rows.append({"change": name, "builder": builder, **min(runs, key=lambda run: run["cpu_seconds"])})
    return rows


def cleared(folder: Path) -> None:
    """End Bazel's servers; take back the right to write that Bazel and Nix have taken from their folders."""
    for path in folder.glob("bazel/*/server/server.pid.txt"):
        os.kill(int(path.read_text()), 15)
    for place, _, _ in os.walk(folder):
        Path(place).chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="profiles/smollm2-cpu.toml")
    parser.add_argument("--builders", default=",".join(NEEDS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wanted = options.builders.split(",")
    there = [name for name in wanted if shutil.which(NEEDS[name])]
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as name:
        try:
            rows = measured(Path(name), options.profile, there)
        finally:
            cleared(Path(name))
    load.append(os.getloadavg()[0])
    if options.json:
        skipped = [name for name in wanted if name not in there]
        print(json.dumps({"load": load, "processors": os.cpu_count(), "skipped": skipped, "rows": rows}, indent=2))
        return
    for name in set(wanted) - set(there):
        print(f"SKIPPED {name}: {NEEDS[name]} is not installed")
    print(f"load average {load[0]:.1f} before, {load[1]:.1f} after; {os.cpu_count()} processors\n")
    print("| after | builder | seconds | of processors | steps that ran |\n|---|---|--:|--:|---|")
    for row in rows:
        steps = ", ".join(row["steps"]) or "none"
        print(f"| {row['change']} | {row['builder']} | {row['seconds']} | {row['cpu_seconds']} | {steps} |")


if __name__ == "__main__":
    sys.exit(main())
