"""Step `app`: the runtime, the selected plugins, the lock and the worker's launcher, as one layer.

Inputs: packages as trees (param `packages`: tree → component it is of), the lock as tree `lock`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pih_runtime import canonical
from pih_runtime.errors import BuildError
from pih_steps import layer, pyc, tar
from pih_steps.closure import Module
from pih_steps.spec import Spec, param
from pih_steps.spec import tree as tree_of

LIB = "pih/lib"
SHEBANG = b"#!/usr/bin/python3 -IB\n"
LAUNCHER = "pih_runtime.launcher"  # a module by its place alone: it is shipped as text, and nothing imports it


def run(spec: Spec) -> None:
    """Write the layer."""
    lock = layer.File(tar.Entry("pih/lock.json", _lock(spec)), "pih", "the decisions that the worker carries out")
    launcher = tar.Entry("usr/bin/pih-worker", _launcher(spec), mode=0o755)
    files = [lock, layer.File(launcher, "pih", "entry point of the image")]
    for name, (component, module) in modules(spec).items():
        path = name.replace(".", "/") + ("/__init__.py" if module.package else ".py")
        content = pyc.compile_module(module.text, f"/{LIB}/{path}")
        files.append(layer.File(tar.Entry(f"{LIB}/{path}c", content), component, f"module {name} of {component}"))
    layer.write(spec.output, files)


def modules(spec: Spec) -> dict[str, tuple[str, Module]]:
    """Modules of the packages: name → (component, module)."""
    packages: dict[str, str] = param(spec, "packages")
    found: dict[str, tuple[str, Module]] = {}
    for tree, component in sorted(packages.items()):
        root = tree_of(spec, tree)
        for path in _sources(root):
            parts = path.relative_to(root.parent).with_suffix("").parts
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            if name == LAUNCHER:
                continue
            if name in found:
                raise BuildError(f"module {name} is in {component} and in {found[name][0]}", where=str(path))
            found[name] = (component, Module(str(path), path.read_bytes(), package))
    return found


def _launcher(spec: Spec) -> bytes:
    package, _, name = LAUNCHER.partition(".")
    for tree in param(spec, "packages"):
        path = tree_of(spec, tree) / f"{name}.py"
        if path.parent.name == package and path.is_file():
            return SHEBANG + path.read_bytes()
    raise BuildError(f"no package has the module {LAUNCHER}", fix="write the lock again: pih lock")


def _sources(root: Path) -> Iterator[Path]:
    if not (root / "__init__.py").is_file():
        raise BuildError("not a Python package: it has no __init__.py", where=str(root))
    return iter(sorted(path for path in root.rglob("*.py") if path.is_file()))


def _lock(spec: Spec) -> bytes:
    """The lock's bytes; LockError where they are not what `pih lock` wrote."""
    fix = "write the lock again: pih lock"
    try:
        raw = spec.trees["lock"].read_bytes()
        canonical.check(json.loads(raw.decode()), fix=fix)
    except KeyError:
        raise BuildError("the step has no tree 'lock'", fix=fix) from None
    except (ValueError, AttributeError) as problem:
        raise BuildError(f"the lock is not JSON: {problem}", fix=fix) from problem
    return raw
