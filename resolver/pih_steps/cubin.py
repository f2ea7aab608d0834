"""Step `cubin`: compile the bound kernels, and only those, to one cubin for one compute capability.

params: isa (as 'sm_89'), bindings (as in the lock). artifacts: nvidia-cuda-nvrtc (the wheel). trees: the pack's
sources, plugins/…/cuda and kernels/cuda. NVRTC needs no driver, no host compiler and no headers but the pack's own.

Output: pack.cubin, and pack.json, which says how each symbol's entries are launched, in the order in which a backend
tries them, by the keys of LAUNCH: `{"abi": …, "sm": …, "cuda": …, "symbols": {SYMBOL: [{"entry": …, …}, …]}}`. "abi" is
that of kernels/cuda/pack.cuh, "cuda" the least version that a driver must serve, as drivers count.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps import cubin_elf
from pih_steps.kernels import constants_of
from pih_steps.spec import Spec, artifact, of_the_disk, param

# Contraction is off because a kernel spells out its own fma.
FLAGS = ("-std=c++20", "-default-device", "--fmad=false")
ABI = 1  # of kernels/cuda/pack.cuh
LAUNCH = ("most_rows", "threads", "rows_per_block", "blocks_per_seq", "y", "z", "scratch")
# What every device takes of a launch, and of shared memory that needs no permission: of a block, in bytes.
MOST_THREADS, MOST_BLOCKS, MOST_SHARED = 1024, 65535, 48 << 10
_LIBRARY = re.compile(r"nvidia/cu[0-9]+/lib/libnvrtc(-builtins)?\.so\.[0-9.]+")
_SM = re.compile(r"sm_[0-9]{2,3}[af]?")


def run(spec: Spec) -> None:
    """Write pack.cubin and pack.json for params `isa` and `bindings`."""
    sm = str(param(spec, "isa"))
    if not _SM.fullmatch(sm):
        raise BuildError(f"{sm!r} is no compute capability", fix="write the lock again: pih lock")
    bindings = param(spec, "bindings")
    with tempfile.TemporaryDirectory(prefix="pih-cubin-") as folder:
        work = Path(folder)
        library = unpack_nvrtc(artifact(spec, "nvidia-cuda-nvrtc"), work)
        for name, tree in spec.trees.items():
            if name.startswith(("kernels/", "plugins/")):
                shutil.copytree(tree, work / name)
        includes = [work / name for name in spec.trees if (work / name).is_dir()]
        made, cuda = compile_pack(library, source(bindings), sm, includes)
    spec.output.mkdir(exist_ok=True)
    (spec.output / "pack.cubin").write_bytes(made)
    (spec.output / "pack.json").write_text(table(made, sm, cuda, bindings), encoding="utf-8")


def source(bindings: Iterable[Mapping[str, Any]]) -> str:
    """The pack's one translation unit: each used source once, the entries of each symbol, both sorted."""
    symbols = {item["symbol"]: item for item in bindings}
    lines = [f'#include "{name}"' for name in sorted({item["source"] for item in symbols.values()})]
    for symbol, item in sorted(symbols.items()):
        constants = ", ".join(
            [symbol, *(f"{value}u" if value >= 1 << 31 else str(value) for value in constants_of(item))]
        )
        lines.append(f"PIH_ENTRIES_{item['template']}({constants})")
    return "\n".join(lines) + "\n"


def table(cubin: bytes, sm: str, cuda: int, bindings: Iterable[Mapping[str, Any]]) -> str:
    """The text of pack.json; raises BuildError where the cubin's entries are not those of the bindings."""
    found = cubin_elf.read(cubin, "pack.cubin")
    if found.sm != sm:
        raise BuildError(f"the compiler made a cubin for {found.sm}, not {sm}")
    entries: dict[str, list[dict[str, Any]]] = {
        symbol: [] for symbol in sorted(str(item["symbol"]) for item in bindings)
    }
    for entry in found.entries:
        symbol = owner(entry.name, entries)
        if not symbol or not entry.launch:
            raise BuildError(f"kernel entry {entry.name} belongs to no binding, or does not say how it is launched")
        _check_launch(entry)
        entries[symbol].append(row(entry))
    for symbol, known in entries.items():
        if not known:
            raise BuildError(f"the pack's sources make no entry for {symbol}")
        known.sort(key=lambda item: int(item["most_rows"]))
    return json.dumps({"abi": ABI, "sm": sm, "cuda": cuda, "symbols": entries}, indent=1) + "\n"


def owner(entry: str, symbols: Iterable[str]) -> str:
    """The symbol that an entry is of, by its name: the longest that it begins with; '' for none."""
    return max((symbol for symbol in symbols if f"{entry}_".startswith(f"{symbol}_")), key=len, default="")


def row(entry: cubin_elf.Entry) -> dict[str, Any]:
    """How pack.json has an entry that says how it is launched."""
    return {"entry": entry.name, **dict(zip(LAUNCH, entry.launch, strict=True))}


def _check_launch(entry: cubin_elf.Entry) -> None:
    """Raise BuildError where no device would take the launch."""
    asked = {**row(entry), "shared": entry.shared}
    for name, least, most in (
        ("threads", 1, MOST_THREADS),
        ("rows_per_block", 1, MOST_BLOCKS),
        ("y", 1, MOST_BLOCKS),
        ("z", 1, MOST_BLOCKS),
        ("shared", 0, MOST_SHARED),
    ):
        if not least <= int(asked[name]) <= most:
            raise BuildError(
                f"kernel entry {entry.name} asks for {name} {asked[name]}, a device takes {least} to {most}",
                fix="bound what leads there by `most` in the kernel pack's plugin.toml, so that pih lock refuses it",
            )


def unpack_nvrtc(wheel: Path, folder: Path) -> Path:
    """NVRTC's two libraries out of its wheel; gives the one to load, which finds the other beside itself."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if _LIBRARY.fullmatch(name)]
            archive.extractall(folder, names)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(
            f"not a wheel of NVRTC: {problem}", where=str(wheel), fix="delete it and build again"
        ) from problem
    main = [name for name in names if "builtins" not in name]
    if len(main) != 1 or len(names) != 2:
        raise BuildError("not a wheel of NVRTC: it does not hold its two libraries", where=str(wheel))
    return folder / main[0]


def compile_pack(library: Path, text: str, sm: str, includes: Iterable[Path]) -> tuple[bytes, int]:
    """The cubin, and the CUDA version that loads it; raises BuildError with the compiler's own words where it has none.

    No path reaches the output: there is no line information in it.
    """
    nvrtc = ctypes.CDLL(str(library))
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    program = ctypes.c_void_p()

    def call(name: str, *arguments: Any) -> None:
        code = getattr(nvrtc, name)(*arguments)
        if code:
            raise BuildError(f"{name}: {nvrtc.nvrtcGetErrorString(code).decode()}", where=f"kernel pack for {sm}")

    def result(size: str, content: str) -> bytes:
        length = ctypes.c_size_t()
        call(size, program, ctypes.byref(length))
        buffer = ctypes.create_string_buffer(length.value)
        call(content, program, buffer)
        return buffer.raw

    flags = [flag.encode() for flag in (f"--gpu-architecture={sm}", *FLAGS, *(f"-I{path}" for path in includes))]
    call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"pack.cu", 0, None, None)
    try:
        if nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags)):
            words = result("nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
            raise BuildError(f"the kernels do not compile:\n{words.strip()}", where=f"kernel pack for {sm}")
        major, minor = ctypes.c_int(), ctypes.c_int()
        call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        # a driver loads what any compiler of its own major version makes
        return result("nvrtcGetCUBINSize", "nvrtcGetCUBIN"), major.value * 1000
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
