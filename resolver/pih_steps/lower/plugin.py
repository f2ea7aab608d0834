"""Loading a model plugin's build half: the function that its manifest names, from its own folder."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import cast

from pih_runtime.errors import BuildError
from pih_steps.lower import GraphFunction


def load_graph(package: Path, entry: str) -> GraphFunction:
    """The graph function `entry`, 'package:function', of the package in this folder."""
    name, _, function = entry.partition(":")
    init = package / "__init__.py"
    spec = spec_from_file_location(name, init, submodule_search_locations=[str(package)])
    if package.name != name or spec is None or spec.loader is None or not init.is_file():
        raise BuildError(f"there is no package {name}", where=str(package), fix='[build] entry is "package:function"')
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise BuildError(f"{name} has no function {function!r}", where=str(package), fix="name an existing one in [build] entry")
    return cast("GraphFunction", found)
