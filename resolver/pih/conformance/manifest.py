"""What can be judged of a plugin without running it: its manifest, its files, and what its code imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from pih.catalog import Manifest
from pih.reading import read_at_most
from pih.trust.matrix import unfit

_OURS = {"runtime": {"pih_runtime"}, "build": {"pih_runtime", "pih_steps"}}
_MOST = 4 << 20  # bytes of a module
_TAKES = {"runtime": 1, "build": 3}  # start(context); graph(config, tensors, limits) and the like


def problems(manifest: Manifest, folder: Path, *, own: bool) -> Iterator[str]:
    """What is wrong beside the manifest's form. own: a plugin of the source tree, which needs no version matrix."""
    if not own and (found := unfit(manifest)) is not None:
        yield f"{found.why}; {found.fix}"
    for half, part in (("runtime", manifest.runtime), ("build", manifest.build)):
        if part is not None:
            yield from _entry(folder, part.entry, _TAKES[half])
            yield from _imports(folder / part.package, half, manifest)
    if manifest.runtime is not None and manifest.runtime.host_bytes == 0:
        yield "runtime.host_bytes is 0: the budget needs what the plugin costs at ready"


def sources(manifest: Manifest, folder: Path) -> Iterator[str]:
    """What a report says of files that are not below `folder`, where the plugin's kernels lie."""
    for kernel in manifest.report.kernel:
        if not (folder / kernel.source).is_file():
            yield f"{kernel.op} {kernel.weight}: there is no source {kernel.source}"
    for fused in manifest.report.fused:
        if not (folder / fused.source).is_file():
            yield f"{'+'.join(fused.ops)}: there is no source {fused.source}"


def _entry(folder: Path, entry: str, takes: int) -> Iterator[str]:
    module, _, name = entry.partition(":")
    path = folder.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = _parsed(file)
    if tree is None:
        yield f"{file.relative_to(folder)} is no Python"
        return
    named = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    found = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    if found is None and name not in named:
        yield f"{entry}: {file.relative_to(folder)} has no function {name}"
    elif found is not None and len(found.args.args) != takes:
        yield f"{entry}: takes {len(found.args.args)} arguments, its caller gives {takes}"


def _imports(package: Path, half: str, manifest: Manifest) -> Iterator[str]:
    """Own files, the standard library, PIH's own layer; wheels only where the manifest lists some."""
    allowed = _OURS[half] | {package.name, "__future__"} | set(sys.stdlib_module_names)
    wheels = manifest.runtime is not None and bool(manifest.runtime.wheels)
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package.parent)
        tree = _parsed(path)
        if tree is None:
            yield f"{where} is no Python"
            continue
        for name, line in _names(tree):
            top = name.partition(".")[0]
            if top not in allowed and (top.startswith("pih") or not wheels or half == "build"):
                yield f"{where}:{line} imports {name}, which is not there when the plugin runs"


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or "", node.lineno


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(read_at_most(path, _MOST))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
