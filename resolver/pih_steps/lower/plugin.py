"""Loading a model plugin's build half: the function that its plugin.toml names, from its own folder."""

from __future__ import annotations

import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, cast

from pih_runtime.errors import BuildError
from pih_steps.lower import GraphFunction


def load_graph(plugin: Path) -> GraphFunction:
    """The graph function of the model plugin in this folder; `[build] entry` is 'package:function'."""
    manifest = plugin / "plugin.toml"
    try:
        entry: Any = tomllib.loads(manifest.read_text("utf-8"))["build"]["entry"]
        package, function = entry.split(":")
    except (OSError, ValueError, KeyError, AttributeError) as problem:
        raise BuildError(
            f"no build entry: {problem!r}",
            where=str(manifest),
            fix='a model plugin has [build] entry = "package:function"',
        ) from problem
    init = plugin / package / "__init__.py"
    spec = spec_from_file_location(package, init, submodule_search_locations=[str(init.parent)])
    if spec is None or spec.loader is None or not init.is_file():
        raise BuildError(f"the build entry's package {package} is not there", where=str(manifest), fix=f"add {init}")
    module = module_from_spec(spec)
    sys.modules[package] = module
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise BuildError(f"{package} has no function {function}", where=str(manifest), fix="name an existing one")
    return cast("GraphFunction", found)
