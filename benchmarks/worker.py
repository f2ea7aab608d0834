"""A built bundle's worker: time to ready, resident memory at ready, decode through the API; a no-op build.

Starts the worker from its unpacked files, as `pih serve` does, and asks it over a socket. Best of several runs:
machines are shared, and these figures are about what the program needs, not about its neighbours.

    .venv/bin/python benchmarks/worker.py --profile profiles/smollm2-cpu.toml [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "runtime")]

from pih import lock as locks  # noqa: E402 - the path comes first
from pih.build.store import default_root, open_store  # noqa: E402 - the path comes first
from pih.bundle import client, run, unpacked  # noqa: E402 - the path comes first
from pih.bundle import layout as layouts  # noqa: E402 - the path comes first

MB = 1_000_000


def build(profile: str) -> tuple[float, dict]:
    started = time.perf_counter()
    out = subprocess.run(
        [str(ROOT / "pih"), "build", "--profile", profile, "--json"], stdout=subprocess.PIPE, check=True, cwd=ROOT
    ).stdout
    return time.perf_counter() - started, json.loads(out)


def resident(process: int) -> dict[str, int]:
    """Resident bytes of the worker: the process that was started, or under bwrap its child."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    status = Path(f"/proc/{children[0] if children else process}/status").read_text()
    found = {key: int(value) * 1024 for key, value in re.findall(r"(Rss\w+|VmRSS):\s+(\d+) kB", status)}
    return {"all": found["VmRSS"], "anonymous": found["RssAnon"], "mapped": found["RssFile"]}


def once(image: layouts.Layout, store, model: str) -> dict:
    with run.private_folder() as listen:
        started = time.perf_counter()
        with unpacked.started(image, store, listen, None) as worker:
            client.wait_ready(worker.address, worker.alive, 120)
            ready = time.perf_counter() - started
            memory = resident(worker.process.pid)
            request = {"model": model, "messages": [{"role": "user", "content": "Tell me a story about a fox."}]}
            request |= {"max_tokens": 128, "temperature": 0}
            times = [time.perf_counter() for _ in client.chat(worker.address, request)]
    rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    return {"ready_s": ready, "resident": memory, "decode_pieces_per_s": rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="profiles/smollm2-cpu.toml")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _, built = build(options.profile)
    lock = locks.read(locks.path_for(ROOT / options.profile))
    image, store = layouts.read(Path(built["layout"])), open_store(default_root(os.environ))
    once(image, store, lock.service.model_name)  # unpacks, warms the page cache
    runs = [once(image, store, lock.service.model_name) for _ in range(options.runs)]
    best = min(runs, key=lambda one: one["ready_s"])
    host = min(one["resident"]["all"] for one in runs) - lock.budget.weights
    result = {
        "profile": options.profile,
        "noop_build_s": min(build(options.profile)[0] for _ in range(options.runs)),
        "ready_s": best["ready_s"],
        "resident_mb": best["resident"]["all"] / MB,
        "resident_less_weights_mb": host / MB,
        "kv_pool_mb": lock.budget.kv / MB,
        "decode_pieces_per_s": max(one["decode_pieces_per_s"] for one in runs),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{options.profile}, best of {options.runs}")
    print(f"no-op build          {result['noop_build_s']:8.2f} s")
    print(f"start to ready       {result['ready_s']:8.2f} s")
    print(f"resident at ready    {result['resident_mb']:8.1f} MB")
    print(f"  without weights    {result['resident_less_weights_mb']:8.1f} MB")
    print(f"decode, batch 1      {result['decode_pieces_per_s']:8.1f} pieces of text a second, through the API")


main()
