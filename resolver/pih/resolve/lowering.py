"""Lowering at lock time: the same code as the `plan` step runs, on the same parameters.

What comes out is recorded: op bindings, the plan's digest, the bytes that the budget counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from pih.catalog import Manifest
from pih.lock import Artifact, Binding, Limits, PlanRef
from pih.resolve.model import ModelFile
from pih.resolve.solve import Solution
from pih.structure import structure
from pih_runtime import plan as plans
from pih_runtime.errors import BuildError, ResolutionError

Fetch = Callable[[Artifact], Path]


@attrs.frozen
class Lowering:
    """What lowering is done with. decoder, pack: plugin folders of the source tree. checkpoint: as `pih_steps.lower.sources` reads it.

    described: what of the checkpoint the plan needs; without the weights' bytes where a tensor table says enough.
    """

    decoder: str
    pack: str
    isa: str
    limits: Limits
    checkpoint: dict[str, Any]
    described: dict[str, Any]
    page_size: int


@attrs.frozen
class Lowered:
    """The decisions that follow from a plan; bytes of weights, caches and the arena."""

    plan: PlanRef
    bindings: tuple[Binding, ...]
    weights: int
    kv: int
    activations: int


def lowering_of(solution: Solution, files: Mapping[str, ModelFile], isa: str, limits: Limits) -> Lowering:
    """What to lower, from the chosen plugins and the model's files."""
    from pih_steps.lower import PAGE_SIZE

    decoder = provider(solution, "model.decoder")
    pack = provider(solution, "kernels.pack") or provider(solution, "backend.device")
    assert decoder is not None
    assert pack is not None
    checkpoint, described = _checkpoint(files)
    return Lowering(f"plugins/{decoder.id}", f"plugins/{pack.id}", isa, limits, checkpoint, described, PAGE_SIZE)


def lower(lowering: Lowering, files: Mapping[str, ModelFile], root: Path, fetch: Fetch) -> Lowered:
    """Lower the model; raises ResolutionError where config, tensors, limits and kernels do not go together."""
    from pih_steps import lower as lowerer
    from pih_steps.lower import sources
    from pih_steps.lower.plugin import load_graph

    needed = set(_names(lowering.described, "artifact"))
    artifacts = {
        file.artifact.name: fetch(file.artifact)
        for file in files.values()
        if file.artifact is not None and file.artifact.name in needed
    }
    trees = {name: root / name for name in _names(lowering.described, "tree")}
    limits = plans.Limits(lowering.limits.tokens, lowering.limits.batch, lowering.limits.context)
    try:
        lowered = lowerer.lower(
            sources.described(lowering.described, artifacts, trees),
            load_graph(root / lowering.decoder),
            lowerer.read_report(root / lowering.pack, lowering.isa),
            limits,
            lowering.limits.kv_dtype,
            lowering.page_size,
        )
    except BuildError as problem:
        raise ResolutionError(problem.what, where=problem.where, fix=problem.fix) from problem
    plan = lowered.plan
    return Lowered(
        plan=PlanRef(sha256=lowerer.plan_sha256(plan), calls=len(plan.calls)),
        bindings=tuple(_binding(bound) for bound in lowered.bindings),
        weights=plan.weight_bytes,
        kv=plan.cache_bytes,
        activations=plan.arena_bytes,
    )


def provider(solution: Solution, capability: str) -> Manifest | None:
    """The chosen plugin that serves a capability."""
    return next((plugin for plugin in solution.plugins if capability in plugin.provides), None)


def _binding(bound: Any) -> Binding:
    fields = {field.name: getattr(bound, field.name) for field in attrs.fields(Binding)}
    return structure({**fields, "constants": dict(fields["constants"])}, Binding)


def _checkpoint(files: Mapping[str, ModelFile]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checkpoint with its bytes, and as the plan needs it."""
    weights = files["weights"]
    if weights.source.kind == "synthetic":
        config, tensors = (weights.part(name) for name in ("config.json", "tensors.json"))
        synthetic = {"format": "synthetic", "config": config, "tensors": tensors, "seed": weights.source.seed}
        return synthetic, synthetic
    if weights.is_gguf:
        gguf = {"format": "gguf", "file": weights.reference}
        return gguf, gguf
    config = files["config"].reference
    whole = {"format": "safetensors", "files": [weights.reference], "config": config}
    if "tensors" in files:
        return whole, {"format": "description", "config": config, "tensors": files["tensors"].reference}
    return whole, whole


def _names(data: Any, key: str) -> list[str]:
    """Every value of `key` in nested parameters: the artifacts or trees that they refer to."""
    if isinstance(data, dict):
        own = [data[key]] if isinstance(data.get(key), str) else []
        return own + [name for item in data.values() for name in _names(item, key)]
    if isinstance(data, list):
        return [name for item in data for name in _names(item, key)]
    return []


def inputs(parameters: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(artifacts, trees) that a step's parameters refer to."""
    return tuple(sorted(set(_names(parameters, "artifact")))), tuple(sorted(set(_names(parameters, "tree"))))
