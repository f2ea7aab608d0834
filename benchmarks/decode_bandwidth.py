"""How much of the machine's read bandwidth does decoding one sequence use?

Builds a synthetic model in a true shape (no checkpoint, no lowering), runs it on backend/cpu, and reads the
same weights with a loop that does nothing else, in the same process, on the same threads, in turns.

    python benchmarks/decode_bandwidth.py --model qwen3-0.6b --isa x86-64-v4-bf16-vnni
    python benchmarks/decode_bandwidth.py --model smollm2-135m --isa x86-64-v3 --threads 2 --json

The ziglang wheel comes from a PIH_MIRROR directory, or from --ziglang.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "runtime"), str(ROOT / "plugins" / "backend" / "cpu")]

from pih_backend_cpu.backend import CpuBackend  # noqa: E402 - the path comes first
from pih_backend_cpu.pack import load_pack  # noqa: E402 - the path comes first
from synthetic_decoder import EVERYTHING, PAGE, SHAPES, Weights, synthetic  # noqa: E402 - the path comes first

from pih_runtime.plan import Buffer, Call, Limits, Operand, Plan, Weight  # noqa: E402 - the path comes first
from pih_runtime.step import Sampling, Step  # noqa: E402 - the path comes first
from pih_steps import kernels  # noqa: E402 - the path comes first
from pih_steps.spec import Spec  # noqa: E402 - the path comes first


def ziglang(option: str) -> Path:
    folders = [Path(entry) for entry in os.environ.get("PIH_MIRROR", "").split(os.pathsep) if entry]
    found = [Path(option)] if option else [wheel for folder in folders for wheel in folder.glob("ziglang-*x86_64*.whl")]
    if not found:
        sys.exit("no ziglang wheel: give --ziglang FILE or PIH_MIRROR")
    return found[0]


def build(bindings: list[dict], isa: str, wheel: Path, folder: Path) -> Path:
    """The pack of these bindings, with the reading loop beside the kernels."""
    trees = {"kernels/include": ROOT / "kernels" / "include", "kernels/cpu": folder / "cpu"}
    shutil.copytree(ROOT / "kernels" / "cpu", folder / "cpu")
    shutil.copy(ROOT / "benchmarks" / "read_bandwidth.h", folder / "cpu")
    kernels.run(Spec({"isa": isa, "bindings": bindings}, {"ziglang": wheel}, trees, {}, (), folder / "pack.so"))
    return folder / "pack.so"


def decode_step(position: int, pages: int, draw: Sampling) -> Step:
    ints = lambda *values: array("i", values)  # noqa: E731 - a name for one line
    table = array("i", range(pages))
    return Step(
        ints(-1 if position else 1), ints(position), ints(0, 1), table, pages, ints(position), ints(0), ints(0), (draw,)
    )


def prefill_step(tokens: int, pages: int) -> Step:
    ints = lambda values: array("i", values)  # noqa: E731 - a name for one line
    places = range(tokens)
    table = ints(range(pages))
    return Step(
        ints([t % 1000 for t in places]), ints(places), ints([0, tokens]), table, pages, ints(places),
        ints([tokens - 1]), ints([0]), (Sampling(),),
    )  # fmt: skip


def timed(backend: CpuBackend, steps: Iterator[Step]) -> list[float]:
    seconds = []
    for step in steps:
        begun = time.perf_counter()
        backend.wait(backend.submit(step))
        seconds.append(time.perf_counter() - begun)
    return seconds


def measure(options: argparse.Namespace, folder: Path) -> dict:
    shape = SHAPES[options.model]
    limits = Limits(tokens=options.prefill, seqs=1, context=2048)
    plan, bindings = synthetic(shape, limits)
    weights = Weights(plan, options.memory, folder)
    everything_bytes = weights.sizes[EVERYTHING]
    reading = {"template": "read_bandwidth", "source": "read_bandwidth.h", "constants": {"bytes": everything_bytes}}
    reading["symbol"] = f"read_bandwidth_bytes{everything_bytes}"
    pack = load_pack(build([*bindings, reading], options.isa, ziglang(options.ziglang), folder))
    everything = Weight(EVERYTHING, (everything_bytes,), "u8", "rows", everything_bytes)
    operands = (Operand(weight=EVERYTHING), Operand(buffer="y", columns=1))
    reader_plan = Plan(
        "reader", Limits(1, 1, 1), 64, 64, (Buffer("y", "T", 1, "f32", 64, 0),), (), (everything,),
        (Call("linear", reading["symbol"], operands, {}),),
    )  # fmt: skip
    pages = limits.context // PAGE
    backend = CpuBackend(plan, pack, weights, options.threads)
    reader = CpuBackend(reader_plan, pack, weights, options.threads)
    ints = array("i", [0])
    read_step = Step(ints, ints, array("i", [0, 1]), array("i"), 0, ints, array("i"), array("i"), ())
    try:
        prefill = timed(backend, iter([prefill_step(options.prefill, pages)] * 2))[-1]
        reads, decodes = [], []
        draw = Sampling(temperature=0.6, top_k=20, top_p=0.95, seed=1)
        for start in range(0, options.tokens, 8):
            reads += timed(reader, iter([read_step] * 4))
            # Eight steps, each at the position after the last, within a short context.
            decodes += timed(backend, (decode_step(64 + start + i, pages, draw) for i in range(8)))
    finally:
        reader.stop()
        backend.stop()
    # The embedding row is read by the head as well: each weight once a token.
    streamed = sum(weight.nbytes for weight in plan.weights)
    read, decode = everything_bytes / statistics.median(reads), streamed / statistics.median(decodes)
    return {
        "model": options.model, "isa": options.isa, "threads": options.threads, "memory": options.memory,
        "weight_bytes": streamed, "read_gb_s": round(read / 1e9, 2), "decode_gb_s": round(decode / 1e9, 2),
        "ratio": round(decode / read, 3), "read_best_gb_s": round(everything_bytes / min(reads) / 1e9, 2),
        "decode_best_gb_s": round(streamed / min(decodes) / 1e9, 2),
        "tokens_s": round(1 / statistics.median(decodes), 1),
        "prefill_tokens": options.prefill, "prefill_tokens_s": round(options.prefill / prefill, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SHAPES), default="qwen3-0.6b")
    parser.add_argument("--isa", choices=sorted(kernels.CPU_OF_ISA), default="x86-64-v3")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=64, help="decode steps to time")
    parser.add_argument("--prefill", type=int, default=256, help="tokens of the one prefill step")
    parser.add_argument(
        "--memory", choices=("file", "huge"), default="file", help="weights in a file's pages or huge pages"
    )
    parser.add_argument("--ziglang", default="", help="the wheel, instead of PIH_MIRROR")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pih-bench-") as folder:
        result = measure(options, Path(folder))
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
