"""The software GPU: kernels and driver compiled for the CPU by the pinned compiler, and a process that finds them."""

import ctypes
import hashlib
import json
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

from pih_steps import cubin, kernels
from tests.support.artifacts import artifact
from tests.support.program import ROOT

SOURCES = ROOT / "kernels/cuda"
SIMULATOR = ROOT / "tools/simgpu"
NVRTC = "nvidia-cuda-nvrtc"
LIBC = (
    *(f"ziglang/lib/{part}" for part in ("c", "ubsan", "libc/glibc/", "libc/include/generic-glibc/")),
    *(
        f"ziglang/lib/libc/include/{part}/"
        for part in ("x86_64-linux-gnu", "x86-linux-gnu", "x86-linux-any", "any-linux-any")
    ),
)
FLAGS = (
    *("-x", "c++", "-std=c++20", "-target", "x86_64-linux-gnu.2.31", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-fno-exceptions", "-fno-rtti", "-fno-sanitize=all", "-Wall", "-Werror"),
    *("-fsanitize=alignment", "-fsanitize-trap=alignment"),  # a device refuses what a CPU lets pass
    # kernels read memory as whatever type suits the load, and spell out their own fma
    *("-O1", "-fno-strict-aliasing", "-ffp-contract=off"),
    "-fwrapv",  # 32 bits wrap as a device's do, and are not widened to 64 because nobody may overflow them
)


@cache
def compiler(folder):
    """The pinned compiler, unpacked in a folder that a whole run of tests shares."""
    if not (folder / "ziglang/zig").exists():
        folder.mkdir(parents=True, exist_ok=True)
        kernels.unpack_zig(artifact("wheel", "ziglang"), folder)
        with zipfile.ZipFile(artifact("wheel", "ziglang")) as archive:  # the C library's headers and stubs, too
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(LIBC)])
    return folder


def compiled(folder, name, texts, *includes, flags=()):
    """A shared library of these translation units, by the digest of all that it is made from."""
    held = hashlib.sha256("".join(texts).encode())
    for path in sorted(path for tree in (SIMULATOR, *includes) for path in tree.rglob("*") if path.is_file()):
        held.update(path.read_bytes())
    made = folder / f"{name}-{held.hexdigest()[:16]}.so"
    if not made.exists():
        home = compiler(folder / "zig")
        sources = [folder / f"{made.stem}-{number}.cpp" for number in range(len(texts))]
        for source, text in zip(sources, texts, strict=True):
            source.write_text(text)
        paths = [f"-I{path}" for path in (SIMULATOR / "include", *includes)]
        environment = {
            "ZIG_GLOBAL_CACHE_DIR": str(home / "cache"),
            "ZIG_LOCAL_CACHE_DIR": str(home / "cache"),
            "HOME": "/",
        }
        done = subprocess.run(
            [home / "ziglang/zig", "cc", *FLAGS, *flags, *paths, *sources, "-o", made],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return made


def module(folder, text, sources=SOURCES):
    """A kernel pack's translation unit, compiled for the CPU."""
    return compiled(folder, "module", [_module(text)], sources)


def _module(text):
    return f"{text}#include <simgpu_module.cuh>\n"


def unit_test(folder, path, sources=SOURCES, **more):
    """Runs a CUDA unit test (tests/cuda) in a process of its own, which a kernel may end. more: of PIH_SIMGPU."""
    text = _module(path.read_text())
    made = compiled(folder, path.stem, [text], SIMULATOR, sources, path.parent, flags=["-fvisibility=default"])
    main = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).main())"
    environment = {"PIH_SIMGPU": _joined(more)}
    command = [sys.executable, "-I", "-c", main, made]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def driver(folder, text=""):
    """The folder with libcuda.so.1 in it; with a pack's translation unit, one that needs no folder of modules."""
    sources = sorted((SIMULATOR / "driver").glob("*.cpp"))
    units = [*(source.read_text() for source in sources), *([_module(text)] if text else [])]
    made = compiled(folder, "libcuda", units, SIMULATOR, SOURCES, flags=["-Wl,-soname,libcuda.so.1"])
    home = folder / ("whole-driver" if text else "driver")
    home.mkdir(exist_ok=True)
    link = home / "libcuda.so.1"
    if not link.exists():
        link.symlink_to(made)
    return home


def apart(folder, home):
    """A copy of the driver in this folder, under a name of its own: a process can have it beside another's state."""
    copy = home / "apart-cu.so"
    copy.write_bytes((driver(folder) / "libcuda.so.1").read_bytes().replace(b"libcuda.so.1\0", b"apart-cu.so\0\0"))
    return copy


def cubin_pack(folder, bindings, sm, sources=SOURCES):
    """The folder of a pack as the build step makes it."""
    held = hashlib.sha256(cubin.source(bindings).encode())
    for path in sorted(sources.iterdir()):
        held.update(path.read_bytes())
    made = folder / f"pack-{sm}-{held.hexdigest()[:16]}"
    if not (made / "pack.json").exists():
        spec = {
            "params": {"isa": sm, "bindings": bindings},
            "artifacts": {NVRTC: str(artifact("wheel", NVRTC))},
            "trees": {"kernels/cuda": str(sources)},
            "steps": {},
            "tools": [],
            "output": str(made),
        }
        described = folder / f"{made.name}.spec.json"
        described.write_text(json.dumps(spec))
        # in a process of its own: torch may have loaded another NVRTC into this one
        step = [sys.executable, "-I", ROOT / "resolver/pih_steps", "cubin", described]
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return made


def pack(folder, bindings, sm, sources=SOURCES):
    """A pack as the build step makes it, in a folder of its own, and its module where the driver finds it.

    Gives (the pack's folder, the modules' folder).
    """
    made = cubin_pack(folder, bindings, sm, sources)
    digest = hashlib.sha256((made / "pack.cubin").read_bytes()).hexdigest()
    modules = folder / "modules"
    modules.mkdir(exist_ok=True)
    link = modules / f"{digest}.so"
    if not link.exists():
        link.symlink_to(module(folder, cubin.source(bindings), sources))
    return made, modules


def settings(modules, **more):
    """The value of PIH_SIMGPU."""
    return _joined({"modules": modules, **more})


def _joined(values):
    return ";".join(f"{name}={value}" for name, value in values.items())


class Kernels:
    """Entries of a module, run one launch at a time without a driver."""

    def __init__(self, path, table):
        self.library = ctypes.CDLL(str(path))
        self.table = json.loads(Path(table).read_text())["symbols"] if table else {}

    def run(self, name, grid, threads, call, step, seed=1, first=(0, 0, 0)):
        """One launch, of blocks from `first` on; RuntimeError with the simulator's words where it goes wrong."""
        error = ctypes.create_string_buffer(300)
        (ctypes.c_uint * 3).in_dll(self.library, "simgpu_first")[:] = first
        code = self.library.simgpu_run(
            ctypes.cast(getattr(self.library, name), ctypes.c_void_p),
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(threads, 1, 1),
            (ctypes.c_void_p * 2)(ctypes.addressof(call), ctypes.addressof(step)),
            ctypes.c_uint64(seed),
            error,
            ctypes.c_size_t(len(error)),
        )
        if code:
            raise RuntimeError(f"{code}: {error.value.decode()}")
