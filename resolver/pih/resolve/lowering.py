"""Lowering at lock time: the same code as the `plan` step runs, on the same parameters.

What comes out is recorded: op bindings, the plan's digest, the bytes that the budget counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from pih.catalog import Manifest, Report
from pih.lock import Artifact, Binding, Limits, PlanRef
from pih.resolve.model import ModelFile
from pih.resolve.solve import Solution
from pih.structure import structure, unstructure
from pih_runtime.errors import BuildError, ResolutionError

Fetch = Callable[[Artifact], Path]


@attrs.frozen
class Lowered:
    """The decisions that follow from a plan. Bytes: of weights, of caches, of the arena, of scratch for one thread."""

    plan: PlanRef
    bindings: tuple[Binding, ...]
    weights: int
    kv: int
    arena: int
    scratch: int


def plan_params(solution: Solution, files: Mapping[str, ModelFile], isa: str, limits: Limits) -> dict[str, Any]:
    """The parameters of the `plan` step, but for the digest that it must find.

    The weights' own bytes are left out where a tensor table says enough.
    """
    decoder = provider(solution, "model.decoder")
    assert decoder.build is not None
    roles = ("tensors", "config") if "tensors" in files else ("weights", "config")
    return {
        "model": {"package": f"plugins/{decoder.id}/{decoder.build.package}", "entry": decoder.build.entry},
        "pack": f"plugins/{pack_of(solution).id}/plugin.toml",
        "isa": isa,
        "limits": unstructure(limits),
        "files": references(files, roles),
    }


def lower(
    params: Mapping[str, Any], files: Mapping[str, ModelFile], report: Report, root: Path, fetch: Fetch
) -> Lowered:
    """Lower the model; raises ResolutionError where config, tensors, limits and kernels do not go together."""
    from pih_steps.lower import plan_sha256
    from pih_steps.plan import lowered

    wanted, trees = inputs(params)
    known = {file.artifact.name: file.artifact for file in files.values() if file.artifact is not None}
    try:
        result = lowered(params, {name: fetch(known[name]) for name in wanted}, {name: root / name for name in trees})
    except BuildError as problem:
        raise ResolutionError(problem.what, where=problem.where, fix=problem.fix) from problem
    plan = result.plan
    bindings = tuple(_binding(bound) for bound in result.bindings)
    return Lowered(
        plan=PlanRef(sha256=plan_sha256(plan), calls=len(plan.calls)),
        bindings=bindings,
        weights=plan.weight_bytes,
        kv=plan.cache_bytes,
        arena=plan.arena_bytes,
        scratch=max((_scratch(binding, report) for binding in bindings), default=0),
    )


def provider(solution: Solution, capability: str) -> Manifest:
    """The chosen plugin that serves a capability which every deployment has."""
    return next(plugin for plugin in solution.plugins if capability in plugin.provides)


def pack_of(solution: Solution) -> Manifest:
    """Whose kernels the plan is bound to: the kernel pack, or a backend that runs every op itself."""
    packs = [plugin for plugin in solution.plugins if plugin.kind == "kernels"]
    return packs[0] if packs else provider(solution, "backend.device")


def references(files: Mapping[str, ModelFile], roles: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Those of the roles that there are, as steps name files."""
    return {role: files[role].reference for role in roles if role in files}


def inputs(params: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(artifacts, trees) that a step's parameters refer to."""
    places = list(params.get("files", {}).values())
    trees = {place["tree"] for place in places if "tree" in place}
    if "model" in params:
        trees |= {params["model"]["package"], params["pack"]}
    return tuple(sorted({place["artifact"] for place in places if "artifact" in place})), tuple(sorted(trees))


def _binding(bound: Any) -> Binding:
    fields = {field.name: getattr(bound, field.name) for field in attrs.fields(Binding)}
    return structure({**fields, "constants": dict(fields["constants"])}, Binding)


def _scratch(binding: Binding, report: Report) -> int:
    """Bytes of private scratch that a thread needs for this kernel; the report counts float32 values."""
    kernel = next(kernel for kernel in report.kernel if kernel.template == binding.template)
    return 4 * sum(binding.constants[name] * values for name, values in kernel.scratch.items())
