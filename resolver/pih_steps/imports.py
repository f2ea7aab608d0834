"""Step `imports`: which modules the application can import, of its wheels and of the standard library.

Inputs: the bundle's wheels as artifacts, the runtime's and the plugins' packages as trees; params.libraries, where
plugins open shared libraries of wheels themselves: {path in its wheel: plugin}. The output is small and changes
seldom, so that an edited plugin does not rebuild the layers below it:

    {"stdlib": {module: reason}, "wheels": {artifact: {module: reason}}, "opened": {artifact: {path: reason}},
     "libraries": {name: reason}}

`libraries` are the shared libraries that the wheels' own ask for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pih_runtime.errors import BuildError
from pih_steps import app, closure, elf, wheels
from pih_steps.closure import Module
from pih_steps.spec import Spec

# Edges of wheels that no deployment follows.
CUTS: dict[tuple[str, str], str] = {
    ("click._compat", "click._winconsole"): "Windows only",
    ("click._termui_impl", "webbrowser"): "opens a browser",
}
# Modules that are imported by a name put together at run time.
ADDED: dict[str, tuple[str, ...]] = {
    "anyio._core._eventloop": ("anyio._backends._asyncio",),
}


def run(spec: Spec) -> None:
    """Write the list."""
    applications = app.modules(spec)
    members = {name: wheels.read(path) for name, path in spec.artifacts.items()}
    by_wheel = {name: wheels.modules(found, name) for name, found in members.items()}
    packaged = {module: entry for found in by_wheel.values() for module, (_, entry) in found.items()}
    packaged = closure.loadable(packaged, {name.partition(".")[0] for name in applications} | sys.stdlib_module_names)
    everything = packaged | {name: module for name, (_, module) in applications.items()}

    def references(name: str, module: Module) -> set[str]:
        if not module.text:
            return set()
        strings = {text for text in closure.dotted_strings(module) if text in packaged} if name in packaged else set()
        found = closure.imports(name, module) | strings | set(ADDED.get(name, ()))
        return {prefix for dotted in found for prefix in closure.prefixes(dotted)}

    roots = {name: f"part of {component}" for name, (component, _) in applications.items()}
    reached = closure.close(roots, everything.get, references, CUTS)
    opened = _opened(spec.params.get("libraries", {}), members)
    lists = {
        "stdlib": {name: reason for name, reason in reached.items() if name not in everything and _is_stdlib(name)},
        "wheels": {
            wheel: {name: reached[name] for name in found if name in reached and name in packaged}
            for wheel, found in by_wheel.items()
        },
        "opened": opened,
        "libraries": {
            library: f"needed by {path}"
            for wheel, found in sorted(opened.items(), reverse=True)
            for path in sorted(found, reverse=True)
            for library in elf.needed(members[wheel][path], f"{wheel}/{path}")
        }
        | {
            library: f"needed by {module}"
            for wheel, found in sorted(by_wheel.items(), reverse=True)
            for module, (path, _) in sorted(found.items(), reverse=True)
            if module in reached and path.endswith(".so")
            for library in elf.needed(members[wheel][path], f"{wheel}/{path}")
        },
    }
    spec.output.write_text(json.dumps(lists, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _opened(libraries: Mapping[str, str], members: Mapping[str, Mapping[str, bytes]]) -> dict[str, dict[str, str]]:
    """The wheel of each library, by its path there."""
    found: dict[str, dict[str, str]] = {}
    for path, plugin in sorted(libraries.items()):
        wheel = next((name for name, held in sorted(members.items()) if path in held), None)
        if wheel is None:
            raise BuildError(f"no wheel of the bundle has {path}", where=plugin, fix="correct runtime.libraries there")
        found.setdefault(wheel, {})[path] = f"opened by {plugin}"
    return found


def _is_stdlib(name: str) -> bool:
    """True for a module, not an attribute of one, of the interpreter that runs this step: the bundle's own."""
    parts = name.split(".")
    library = Path(os.__file__).parent.joinpath(*parts)
    return library.with_suffix(".py").exists() or library.joinpath("__init__.py").exists() or len(parts) == 1
