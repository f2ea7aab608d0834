"""Step `kernels`: compile the bound kernels, and only those, to one freestanding shared object.

params: isa, bindings (as in the lock). artifacts: ziglang (the wheel). trees: kernels/include, and the
pack's own sources, e.g. kernels/cpu. The output has no NEEDED entry and no undefined symbol, so one file serves every
libc.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps.spec import Spec, artifact, of_the_disk, param

CPU_OF_ISA = {
    "x86-64-v3": "x86_64_v3",
    "x86-64-v4-bf16-vnni": "x86_64_v4+avx512bf16+avx512vnni",
}

# -O3 also keeps UBSan's runtime out; contraction is off because a kernel spells out its own fma.
FLAGS = (
    "-target",
    "x86_64-linux-musl",
    "-nostdlib",
    "-ffreestanding",
    "-std=c++20",
    "-O3",
    "-shared",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-Wall",
    "-Werror",
    "-g0",
    "-s",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
)

SHARED = "kernels/include"

# What zig's C++ front end needs of its wheel: itself, clang's own headers, and the library it probes for at start.
ZIG_PARTS = ("ziglang/zig", "ziglang/lib/include/", "ziglang/lib/std/", "ziglang/lib/compiler_rt")


def run(spec: Spec) -> None:
    """Write pack.so for params `isa` and `bindings`."""
    isa = param(spec, "isa")
    if isa not in CPU_OF_ISA:
        raise BuildError(f"no kernels for ISA {isa!r}", fix=f"one of {', '.join(sorted(CPU_OF_ISA))}")
    with tempfile.TemporaryDirectory(prefix="pih-kernels-") as folder:
        work = Path(folder)
        unpack_zig(artifact(spec, "ziglang"), work)
        sources = {name: tree for name, tree in spec.trees.items() if name.startswith("kernels/")}
        compile_pack(work, sources, source(isa, param(spec, "bindings")), isa, spec.output)


def source(isa: str, bindings: Iterable[Mapping[str, Any]]) -> str:
    """The pack's one translation unit: each used source once, one instance a symbol, both sorted."""
    symbols = {item["symbol"]: item for item in bindings}
    includes = sorted({item["source"] for item in symbols.values()})
    lines = ['#include "pack.h"', *(f'#include "{name}"' for name in includes), f'PIH_PACK("{isa}")']
    for symbol, item in sorted(symbols.items()):
        constants = ", ".join(f"{value}u" if value >= 1 << 31 else str(value) for value in constants_of(item))
        lines.append(f"PIH_KERNEL({symbol}, {item['template']}<{constants}>)")
    return "\n".join(lines) + "\n"


def constants_of(item: Mapping[str, Any]) -> list[int]:
    """The constants in the template's order, which the symbol spells.

    The keys of a JSON object have no order: Bazel and Nix hand them over sorted.
    """
    left = {f"_{name}{value}": value for name, value in item["constants"].items()}
    rest, found = item["symbol"].removeprefix(item["template"]), []
    while part := next((part for part in left if rest.startswith(part)), ""):
        found.append(left.pop(part))
        rest = rest.removeprefix(part)
    if rest or left:
        raise BuildError(
            f"symbol {item['symbol']!r} does not spell its constants", fix="write the lock again: pih lock"
        )
    return found


def unpack_zig(wheel: Path, folder: Path) -> None:
    """The parts of the wheel that compiling needs: a twentieth of its files."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(ZIG_PARTS)])
        (folder / "ziglang" / "zig").chmod(0o755)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(
            f"not a ziglang wheel: {problem}", where=str(wheel), fix="delete it and build again"
        ) from problem


def compile_pack(folder: Path, trees: Mapping[str, Path], text: str, isa: str, output: Path) -> None:
    """Copies of the sources lie at fixed names in `folder`, where the compiler runs: no path reaches the output.

    A source finds the shared headers first, then those beside it.
    """
    for name, tree in trees.items():
        shutil.copytree(tree, folder / name)
    (folder / "pack.cpp").write_text(text, encoding="utf-8")
    command = ("ziglang/zig", "c++", *FLAGS, f"-mcpu={CPU_OF_ISA[isa]}")
    paths = (*(f"-I{name}" for name in sorted(trees, key=lambda name: (name != SHARED, name))), "pack.cpp")
    cache = str(folder / "cache")
    environment = {"ZIG_LOCAL_CACHE_DIR": cache, "ZIG_GLOBAL_CACHE_DIR": cache, "HOME": cache, "PATH": os.devnull}
    done = subprocess.run(
        (*command, *paths, "-o", "pack.so"), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"the kernels do not compile:\n{done.stderr.strip()}", where=f"kernel pack for {isa}")
    shutil.copyfile(folder / "pack.so", output)
