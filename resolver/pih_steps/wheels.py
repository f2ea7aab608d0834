"""Step `wheels`: the modules of the bundle's wheels that it can import, as one layer.

Inputs: the wheels as artifacts, step `imports`. Under /pih/lib, compiled to .pyc; shared libraries, those too that a
plugin opens itself, stripped of symbols; of the metadata what names the package and its licence.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pih_runtime.errors import BuildError
from pih_steps import elf, layer, pyc, tar
from pih_steps.closure import Module
from pih_steps.spec import Spec, of_the_disk, step

LIB = "pih/lib"
MAX_UNPACKED = 1 << 30
# What zipfile raises on files that are damaged or of a kind that it cannot read.
_DAMAGED = (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_LICENCE = re.compile(r"licen[cs]e|notice|copying|authors", re.IGNORECASE)


def run(spec: Spec) -> None:
    """Write the layer."""
    lists: dict[str, dict[str, dict[str, str]]] = json.loads(step(spec, "imports").read_bytes())
    files: list[layer.File] = []
    for name, path in spec.artifacts.items():
        files += _wheel_files(name, read(path), lists["wheels"].get(name, {}), lists["opened"].get(name, {}))
    layer.write(spec.output, files)


def read(path: Path) -> dict[str, bytes]:
    """Members of a wheel by path. Untrusted: paths stay below the root, sizes are bounded."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            if sum(info.file_size for info in infos) > MAX_UNPACKED:
                raise ValueError(f"unpacks to more than {MAX_UNPACKED} bytes")
            for info in infos:
                if {"", ".", ".."} & set(info.filename.split("/")) or "\\" in info.filename:
                    raise ValueError(f"path {info.filename!r} leaves the root")
            return {info.filename: archive.read(info) for info in sorted(infos, key=lambda info: info.filename)}
    except _DAMAGED as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(
            f"not a wheel that can be used: {problem}", where=str(path), fix="delete it and fetch it again"
        ) from problem


def modules(members: dict[str, bytes], where: str) -> dict[str, tuple[str, Module]]:
    """Importable modules of a wheel: name → (member path, module). A compiled module has no text."""
    found: dict[str, tuple[str, Module]] = {}
    for path, data in members.items():
        parts = PurePosixPath(path)
        if parts.suffix not in (".py", ".so") or ".dist-info" in parts.parts[0]:
            continue
        package = parts.name == "__init__.py"
        stem = parts.parent if package else parts.parent / parts.name.partition(".")[0]
        name = ".".join(stem.parts)
        if all(part.isidentifier() for part in stem.parts):
            found[name] = (path, Module(f"{where}/{path}", data if parts.suffix == ".py" else b"", package))
    return found


def _wheel_files(
    name: str, members: dict[str, bytes], reasons: dict[str, str], opened: dict[str, str]
) -> Iterator[layer.File]:
    for module, (path, _) in modules(members, name).items():
        if module not in reasons:
            continue
        if path.endswith(".py"):
            content = pyc.compile_module(members[path], f"/{LIB}/{path}")
            yield layer.File(tar.Entry(f"{LIB}/{path}c", content), name, reasons[module])
        else:
            content = elf.strip(members[path], f"{name}/{path}")
            yield layer.File(tar.Entry(f"{LIB}/{path}", content), name, reasons[module])
    for path, reason in opened.items():
        content = elf.strip(members[path], f"{name}/{path}")
        yield layer.File(tar.Entry(f"{LIB}/{path}", content), name, reason)
    for path, content in members.items():
        folder, _, rest = path.partition("/")
        if not folder.endswith(".dist-info"):
            continue
        if rest == "METADATA":
            yield layer.File(tar.Entry(f"{LIB}/{path}", content), name, "name and version of the package")
        elif _LICENCE.search(rest):
            yield layer.File(tar.Entry(f"{LIB}/{path}", content), name, "licence of the package")
