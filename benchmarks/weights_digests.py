"""What checking the weights costs: hashing alone, then a worker's time to ready and to its first token.

Every figure is a ratio to hashing the same bytes with one thread in the same round, in CPU time and in wall time, since
machines are shared; the median of several rounds. The worker runs from the unpacked image, with three locks that
differ in what they ask of the weights: nothing, all at start, each at its first use.

    .venv/bin/python benchmarks/weights_digests.py --profile profiles/qwen3-cpu-synthetic.toml [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "runtime")]

from pih.build import interpreter  # noqa: E402 - the path comes first
from pih.build.progress import lines  # noqa: E402 - the path comes first
from pih.build.store import default_root, open_store  # noqa: E402 - the path comes first
from pih.bundle import client, run  # noqa: E402 - the path comes first
from pih.bundle import layout as layouts  # noqa: E402 - the path comes first
from pih.bundle.unpack import unpack  # noqa: E402 - the path comes first
from pih_runtime.canonical import sealed  # noqa: E402 - the path comes first

MIB = 1 << 20
CHECKS = {
    "nothing": {"delivery": "separate", "verify": "start", "digest": ""},
    "start": {"delivery": "embed", "verify": "start", "digest": ""},
    "first-use": {"delivery": "embed", "verify": "first-use", "digest": ""},
}


def built(profile: str) -> Path:
    command = [str(ROOT / "pih"), "build", "--profile", profile, "--json"]
    return Path(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout)["layout"])


def hashed(data: memoryview, chunk: int, threads: int) -> None:
    pending = deque(range(0, len(data), chunk))

    def run() -> None:
        while pending:
            try:
                at = pending.popleft()
            except IndexError:
                return
            hashlib.sha256(data[at : at + chunk]).digest()

    others = [threading.Thread(target=run) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()


def read(data: memoryview) -> None:
    """One byte of each cache line's page is not enough to read it: compare all with zeros, which stops nowhere."""
    zeros = bytes(MIB)
    for at in range(0, len(data), MIB):
        data[at : at + MIB].tobytes().startswith(zeros)


def timed(work: Callable[[], None]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def hashing(path: Path) -> dict[str, dict[str, float]]:
    """One round: the bytes of the file read, hashed whole, and in chunks by one and two threads."""
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    found = {"whole": timed(lambda: hashed(data, len(data), 1)), "read": timed(lambda: read(data))}
    for mib in (1, 2, 4, 8):
        for threads in (1, 2):
            found[f"{mib} MiB, {threads} thread{'s' * (threads > 1)}"] = timed(
                lambda mib=mib, threads=threads: hashed(data, mib * MIB, threads)
            )
    return found


def variant(root: Path, folder: Path, weights: dict[str, str]) -> Path:
    """The unpacked image as hard links, with another word on its weights in the lock."""
    shutil.copytree(root, folder, symlinks=True, copy_function=os.link)
    lock, bundle = folder / "pih/lock.json", folder / "pih/bundle.json"
    data = json.loads(lock.read_bytes())
    listed = json.loads(bundle.read_bytes())
    data.pop("digests")
    text = json.dumps(sealed({**data, "weights": weights})).encode()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    for item in listed["files"]:
        if item["path"] == "/pih/lock.json":
            item["digest"] = listed["lock"] = digest
    for path, content in ((lock, text), (bundle, json.dumps(listed).encode())):
        path.unlink()
        path.write_bytes(content)
    return folder


def worker(root: Path, model: str) -> dict[str, float]:
    """Seconds from the start to ready and to the first token; CPU seconds of the worker until then."""
    with run.private_folder() as private:
        command = [*interpreter.command(root), str(root / "usr/bin/pih-worker"), "--listen", private.address]
        began = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            client.wait_ready(private.address, lambda: process.poll() is None, 300)
            ready = time.perf_counter() - began
            asked = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
            started = time.perf_counter()
            next(iter(client.chat(private.address, {**asked, "temperature": 0})))
            first = time.perf_counter() - started
        finally:
            process.send_signal(signal.SIGTERM)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
    return {"ready": ready, "first": first, "cpu": usage.ru_utime + usage.ru_stime}


def median(rounds: list[dict[str, dict[str, float]]], name: str, key: str, unit: Callable) -> float:
    return statistics.median(one[name][key] / unit(one) for one in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="profiles/qwen3-cpu-synthetic.toml")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    layout = built(options.profile)
    store = open_store(default_root(os.environ))
    with lines(sys.stderr) as listener:
        root = unpack(layouts.read(layout), store, listener)
    rounds = []
    with tempfile.TemporaryDirectory(dir=store.root) as beside:
        roots = {name: variant(root, Path(beside, name), weights) for name, weights in CHECKS.items()}
        model = json.loads((root / "pih/lock.json").read_bytes())["service"]["model_name"]
        for _ in range(options.rounds + 1):
            one = hashing(root / "pih/weights/weights.safetensors")
            rounds.append({**one, **{f"worker: {name}": worker(path, model) for name, path in roots.items()}})
    rounds.pop(0)  # brings the files into the page cache
    names = [(name, key) for name, values in rounds[0].items() for key in values]
    rows = [
        {
            "what": f"{name}, {key}",
            "ratio": median(rounds, name, key, lambda one, key=key: one["whole"]["cpu" if key == "cpu" else "wall"]),
            "seconds": statistics.median(one[name][key] for one in rounds),
        }
        for name, key in names
    ]
    load = os.getloadavg()
    if options.json:
        print(json.dumps({"profile": options.profile, "load": load, "rows": rows}, indent=2))
        return
    print(f"{options.profile}, median of {options.rounds} rounds, load {load[0]:.1f}")
    print("ratio to hashing the same bytes with one thread, whole; seconds")
    for row in rows:
        print(f"{row['what']:32} {row['ratio']:6.2f} {row['seconds']:8.3f} s")


main()
