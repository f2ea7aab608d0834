"""The source tree's own plugins: plugins/<kind>/<name>/plugin.toml."""

from __future__ import annotations

from pathlib import Path

from pih.catalog.data import Catalog, Manifest
from pih.catalog.manifest import MAX_BYTES, abi_problem, parse, refused
from pih.reading import read_at_most, said
from pih.structure import show
from pih.toml_lines import key_lines
from pih_runtime.errors import ResolutionError


def load(root: Path) -> Catalog:
    """Read plugins/*/*/plugin.toml under `root`; raises ResolutionError naming file and line of the first bad one."""
    plugins = tuple(_read(root, path) for path in sorted(root.glob("plugins/*/*/plugin.toml")))
    if not plugins:
        raise ResolutionError(
            "no plugins found", where=str(root / "plugins"), fix="run pih from a complete source tree"
        )
    return Catalog(root=root, plugins=plugins)


def _read(root: Path, path: Path) -> Manifest:
    where = path.relative_to(root).as_posix()
    try:
        raw = read_at_most(path, MAX_BYTES)
    except OSError as problem:
        raise ResolutionError(f"cannot read: {problem.strerror}", where=where, fix="restore the plugin") from problem
    except ValueError as problem:
        raise ResolutionError(f"cannot read: {said(problem)}", where=where, fix="restore the plugin") from problem
    manifest = parse(raw, where)
    folder = f"{path.parent.parent.name}/{path.parent.name}"
    problems = {
        "id": (
            "" if manifest.id == folder else f"{show(manifest.id)} lies in plugins/{folder}",
            f'write id = "{folder}"',
        ),
        "abi": (abi_problem(manifest.abi), "use the plugin's release for this PIH"),
    }
    for key, (what, fix) in problems.items():
        if what:
            raise refused(where, key_lines(raw.decode()), (key,), what, fix)
    return manifest
