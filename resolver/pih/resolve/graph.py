"""The build graph of a lock: each step with its declared inputs, in an order that respects them.

Trees are paths of the source tree, as few as each step reads, so that an edit rebuilds what it must and no more;
`lock` stands for the lock itself. What a step finds under `params` is said beside each step here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pih.catalog import Manifest
from pih.lock import Artifact, Binding, BuildGraph, Limits, Step, Target
from pih.resolve.artifacts import BASE, COMPILER, TOOLS
from pih.resolve.model import ModelFile
from pih.resolve.programs import program
from pih.structure import unstructure

KERNELS_INCLUDE = "kernels/include"


def build_graph(
    name: str,
    plugins: tuple[Manifest, ...],
    artifacts: tuple[Artifact, ...],
    files: Mapping[str, ModelFile],
    target: Target,
    limits: Limits,
    bindings: tuple[Binding, ...],
    delivery: str,
) -> BuildGraph:
    """The steps of one deployment; the last is the image."""
    wheels = _bundle_wheels(plugins)
    packages = {"runtime/pih_runtime": "pih"} | {
        f"plugins/{plugin.id}/{plugin.runtime.package}": plugin.id for plugin in plugins if plugin.runtime is not None
    }
    by_kind = {plugin.kind: plugin for plugin in plugins if plugin.kind != "model"}
    decoder = next(plugin for plugin in plugins if "model.decoder" in plugin.provides)
    steps = [
        # packages: tree → component
        _step("imports", params={"packages": packages}, artifacts=wheels, trees=tuple(packages)),
        _step("wheels", artifacts=wheels, steps=("imports",)),
        _step("base", artifacts=BASE, steps=("imports", "wheels")),
        _step("app", params={"packages": packages}, trees=(*packages, "lock")),
        _plan(decoder, by_kind, files, target, limits),
        _weights(files),
        _model(files),
    ]
    inputs = ["base", "wheels", "app", "plan", "model"]
    if "kernels" in by_kind:
        steps.append(_kernels(by_kind["kernels"], target, bindings))
        inputs.append("kernels")
    if delivery == "embed":
        inputs.append("weights")
    params = {"name": name, "delivery": delivery, "arch": target.arch, "os": target.os}
    steps.append(_step("image", params=params, trees=("lock",), steps=tuple(inputs)))
    return BuildGraph(
        interpreter=tuple(name for name in BASE if any(a.name == name for a in artifacts)), steps=tuple(steps)
    )


def _plan(
    decoder: Manifest, by_kind: Mapping[str, Manifest], files: Mapping[str, ModelFile], target: Target, limits: Limits
) -> Step:
    """params: model {package, entry}, pack (the tree of the kernel pack's plugin.toml), isa, limits, files by role."""
    assert decoder.build is not None
    package = f"plugins/{decoder.id}/{decoder.build.package}"
    pack = f"plugins/{by_kind.get('kernels', by_kind['backend']).id}/plugin.toml"
    roles = [role for role in ("weights", "tensors", "config") if role in files]
    described = [role for role in roles if role != "weights"] if "tensors" in files else roles
    params = {
        "model": {"package": package, "entry": decoder.build.entry},
        "pack": pack,
        "isa": target.isa,
        "limits": unstructure(limits),
        "files": {role: files[role].reference for role in described},
    }
    artifacts, trees = _inputs(files, described)
    return _step("plan", params=params, artifacts=artifacts, trees=(package, pack, *trees), tools=TOOLS)


def _weights(files: Mapping[str, ModelFile]) -> Step:
    """params: files by role; packs what the plan's weights say."""
    roles = [role for role in ("weights", "config") if role in files]
    artifacts, trees = _inputs(files, roles)
    params = {"files": {role: files[role].reference for role in roles}}
    return _step("weights", params=params, artifacts=artifacts, trees=trees, steps=("plan",), tools=TOOLS)


def _model(files: Mapping[str, ModelFile]) -> Step:
    """params: files by role; a role that is not there is taken from the weights' file (GGUF)."""
    roles = [role for role in ("tokenizer", "chat_template", "generation", "config") if role in files]
    if "tokenizer" not in files:
        roles.append("weights")
    artifacts, trees = _inputs(files, roles)
    params = {"files": {role: files[role].reference for role in roles}}
    return _step("model", params=params, artifacts=artifacts, trees=trees, tools=TOOLS)


def _kernels(pack: Manifest, target: Target, bindings: tuple[Binding, ...]) -> Step:
    """params: isa, bindings (as in the lock)."""
    params = {"isa": target.isa, "bindings": unstructure(bindings)}
    trees = (KERNELS_INCLUDE, pack.id)
    return _step("kernels", params=params, artifacts=(COMPILER,), trees=trees)


def _inputs(files: Mapping[str, ModelFile], roles: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Artifact names and trees of these files."""
    used = [files[role] for role in roles]
    artifacts = sorted({file.artifact.name for file in used if file.artifact is not None})
    trees = sorted({file.tree for file in used if file.artifact is None})
    return tuple(artifacts), tuple(trees)


def _bundle_wheels(plugins: tuple[Manifest, ...]) -> tuple[str, ...]:
    from packaging.utils import canonicalize_name

    named = [name for plugin in plugins if plugin.runtime is not None for name in plugin.runtime.wheels]
    return tuple(sorted({canonicalize_name(name) for name in named}))


def _step(
    run: str,
    *,
    params: dict[str, Any] | None = None,
    artifacts: tuple[str, ...] = (),
    trees: tuple[str, ...] = (),
    steps: tuple[str, ...] = (),
    tools: tuple[str, ...] = (),
) -> Step:
    return Step(
        id=run,
        run=run,
        params=params or {},
        artifacts=artifacts,
        trees=(*program(run), *trees),
        steps=steps,
        tools=tools,
    )
