"""The build graph of a lock: each step with its declared inputs, in an order that respects them.

Trees are paths of the source tree, as few as each step reads, so that an edit rebuilds what it must and no more;
`lock` stands for the lock itself. What a step finds under `params` is said beside each step here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name

from pih.catalog import Manifest
from pih.lock import BuildGraph, Step, Target
from pih.profile import Profile
from pih.resolve.artifacts import BASE, COMPILER, TOOLS
from pih.resolve.lowering import Lowered, Lowering, inputs
from pih.resolve.model import ModelFile
from pih.resolve.programs import program
from pih.structure import unstructure

KERNELS_INCLUDE = "kernels/include"
_OCI_ARCH = {"x86_64": "amd64"}


def build_graph(
    *,
    profile: Profile,
    plugins: tuple[Manifest, ...],
    files: Mapping[str, ModelFile],
    lowering: Lowering,
    lowered: Lowered,
    target: Target,
) -> BuildGraph:
    """The steps of one deployment; the last is the image. Separate weights are a step that the image does not take."""
    name, service = profile.name, profile.intent.service
    wheels = _bundle_wheels(plugins)
    packages = {"runtime/pih_runtime": "pih"} | {
        f"plugins/{plugin.id}/{plugin.runtime.package}": plugin.id for plugin in plugins if plugin.runtime is not None
    }
    text = next(plugin.id for plugin in plugins if "model.text" in plugin.provides)
    steps = [
        # packages: tree → component
        _step("imports", params={"packages": packages}, artifacts=wheels, trees=tuple(packages)),
        _step("wheels", artifacts=wheels, steps=("imports",)),
        _step("base", artifacts=BASE, steps=("imports", "wheels")),
        _step("app", params={"packages": packages}, trees=(*packages, "lock")),
        _plan(lowering, lowered),
        _weights(lowering),
        _model(files),
    ]
    taken = ["base", "wheels", "app", "plan", "model"]
    if lowered.bindings and lowering.pack.startswith("plugins/kernels/"):
        steps.append(_kernels(lowering, lowered))
        taken.append("kernels")
    if profile.intent.weights.delivery == "embed":
        taken.append("weights")
    params = {
        "name": name,
        "tag": f"pih/{name}:latest",
        "port": service.port,
        "architecture": _OCI_ARCH[target.arch],
        # which plugin each of the deployment's own files is of
        "components": {
            "plan": lowering.decoder.removeprefix("plugins/"),
            "kernels": lowering.pack.removeprefix("plugins/"),
            "model": text,
        },
    }
    steps.append(_step("image", params=params, steps=tuple(taken)))
    return BuildGraph(interpreter=BASE, steps=tuple(steps))


def _plan(lowering: Lowering, lowered: Lowered) -> Step:
    limits = lowering.limits
    params = {
        "checkpoint": lowering.described,
        "model": lowering.decoder,
        "kernels": lowering.pack,
        "isa": lowering.isa,
        "limits": {"tokens": limits.tokens, "seqs": limits.batch, "context": limits.context},
        "kv_dtype": limits.kv_dtype,
        "page_size": lowering.page_size,
        "expected_plan_sha256": lowered.plan.sha256,
    }
    artifacts, trees = inputs(lowering.described)
    tools = TOOLS if lowering.described["format"] == "synthetic" else ()
    return _step("plan", params=params, artifacts=artifacts, trees=(lowering.decoder, lowering.pack, *trees), tools=tools)


def _weights(lowering: Lowering) -> Step:
    artifacts, trees = inputs(lowering.checkpoint)
    params = {"checkpoint": lowering.checkpoint}
    return _step("weights", params=params, artifacts=artifacts, trees=trees, steps=("plan",), tools=TOOLS)


def _model(files: Mapping[str, ModelFile]) -> Step:
    """params: files by role; where the weights are a GGUF file, what no role names is taken from it."""
    roles = [role for role in ("tokenizer", "chat_template", "generation", "config") if role in files]
    if files["weights"].is_gguf:
        roles.append("weights")
    params = {"files": {role: files[role].reference for role in roles}}
    artifacts, trees = inputs(params)
    return _step("model", params=params, artifacts=artifacts, trees=trees)


def _kernels(lowering: Lowering, lowered: Lowered) -> Step:
    """params: isa, bindings as in the lock. Trees: the headers that every kernel shares, and the sources."""
    params = {"isa": lowering.isa, "bindings": unstructure(lowered.bindings)}
    sources = lowering.pack.removeprefix("plugins/")
    return _step("kernels", params=params, artifacts=(COMPILER,), trees=(KERNELS_INCLUDE, sources))


def _bundle_wheels(plugins: tuple[Manifest, ...]) -> tuple[str, ...]:
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
