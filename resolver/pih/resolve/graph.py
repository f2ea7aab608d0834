"""The build graph of a lock: each step with its declared inputs, in an order that respects them.

Trees are paths of the source tree, as few as each step reads, so that an edit rebuilds what it must and no more;
`lock` stands for the lock itself. What a step finds under `params` is said beside each step here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from pih.catalog import Manifest
from pih.lock import BuildGraph, Seed, Step
from pih.names import normalized
from pih.profile import Profile
from pih.resolve.artifacts import BASE, TOOLS
from pih.resolve.lowering import Lowered, checkpoint, inputs, pack_of
from pih.resolve.model import ModelFile
from pih.resolve.outcome import Solution
from pih.resolve.programs import program
from pih.structure import unstructure

# What compiles a kernel pack: the step that runs it, and the headers that packs of its kind share.
COMPILERS = {"ziglang": ("kernels", ("kernels/include",)), "nvidia-cuda-nvrtc": ("cubin", ())}
# Bytes that one digest stands for: decision 0013.
WEIGHTS_CHUNK = 4 << 20


def build_graph(
    profile: Profile,
    solution: Solution,
    files: Mapping[str, ModelFile],
    plan: Mapping[str, Any],
    lowered: Lowered,
    seed: Seed,
) -> BuildGraph:
    """The steps of one deployment; the last is the image. plan: the parameters of its lowering.

    Weights that are delivered separately, and their digests, are steps that the image does not take.
    """
    wheels = _bundle_wheels(solution)
    packages = {"runtime/pih_runtime": "pih"} | {
        f"plugins/{plugin.id}/{plugin.runtime.package}": plugin.id
        for plugin in solution.plugins
        if plugin.runtime is not None
    }
    libraries = {
        path: plugin.id
        for plugin in solution.plugins
        if plugin.runtime is not None
        for path in plugin.runtime.libraries
    }
    opened = {"libraries": dict(sorted(libraries.items()))} if libraries else {}
    pack = pack_of(solution)
    steps = [
        # packages: tree → component. libraries: path in a wheel → the plugin that opens it
        _step("imports", params={"packages": packages, **opened}, artifacts=wheels, trees=tuple(packages)),
        _step("wheels", artifacts=wheels, steps=("imports",)),
        _step("base", artifacts=BASE, steps=("imports", "wheels")),
        _step("app", params={"packages": packages}, trees=(*packages, "lock")),
        _plan(plan, lowered),
        _weights(files, profile.intent.weights.format),
        _step("digests", params={"chunk": WEIGHTS_CHUNK}, steps=("weights",)),
        _model(files),
    ]
    taken = ["base", "wheels", "app", "plan", "model"]
    if pack.kind == "kernels":
        steps.append(_kernels(plan, pack, lowered))
        taken.append("kernels")
    if profile.intent.weights.delivery == "embed":
        taken += ["weights", "digests"]
    params = {"name": profile.name, "arch": profile.intent.target.arch}
    steps.append(_step("image", params=params, trees=("lock",), steps=tuple(taken)))
    return BuildGraph(interpreter=BASE, seed=seed, steps=tuple(steps))


def recorded(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, the image's with every tree that any of them reads: it writes down what it was made from."""
    *others, image = steps
    trees = dict.fromkeys((*image.trees, *sorted({tree for step in others for tree in step.trees})))
    return (*others, attrs.evolve(image, trees=tuple(trees)))


def _plan(params: Mapping[str, Any], lowered: Lowered) -> Step:
    artifacts, trees = inputs(params)
    complete = {**params, "expected_plan_sha256": lowered.plan.sha256}
    return _step("plan", params=complete, artifacts=artifacts, trees=(params["model"], params["kernels"], *trees))


def _weights(files: Mapping[str, ModelFile], format_: str) -> Step:
    params = {"checkpoint": checkpoint(files, format_)}
    artifacts, trees = inputs(params)
    return _step("weights", params=params, artifacts=artifacts, trees=trees, steps=("plan",), tools=TOOLS)


def _model(files: Mapping[str, ModelFile]) -> Step:
    """params: files by role; where the weights are a GGUF file, what no role names is taken from it."""
    roles = ("tokenizer", "chat_template", "generation", "config")
    named = {role: files[role].reference for role in roles if role in files}
    weights = files["weights"]
    if weights.is_gguf:
        named["weights"] = weights.reference
    if weights.source.kind == "synthetic":
        named["config"] = weights.beside("config.json")
    params = {"files": named}
    artifacts, trees = inputs(params)
    return _step("model", params=params, artifacts=artifacts, trees=trees)


def _kernels(params: Mapping[str, Any], pack: Manifest, lowered: Lowered) -> Step:
    """params: isa, bindings as in the lock. Trees: the headers that every kernel shares, and the sources."""
    own = {"isa": params["isa"], "bindings": unstructure(lowered.bindings)}
    run, shared = COMPILERS[pack.report.compiler]
    made = _step(run, params=own, artifacts=(pack.report.compiler,), trees=(*shared, pack.id))
    return attrs.evolve(made, id="kernels")


def _bundle_wheels(solution: Solution) -> tuple[str, ...]:
    named = [name for plugin in solution.plugins if plugin.runtime is not None for name in plugin.runtime.wheels]
    return tuple(sorted({normalized(name) for name in named}))


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
