"""Lowering at lock time: the same code as the `plan` step runs, on the same parameters.

What comes out is recorded: op bindings, the plan's digest, the bytes that the budget counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import attrs

from pih.catalog import Catalog, Kernel, Manifest, Report
from pih.lock import Artifact, Binding, Limits, PlanRef, Target
from pih.profile import Profile
from pih.resolve import decoders
from pih.resolve.model import ModelFile
from pih.resolve.outcome import Solution
from pih.structure import structure
from pih_runtime.errors import BuildError, ResolutionError

PAGE_SIZE = 16  # positions of a cache page
Fetch = Callable[[Artifact], Path]


@attrs.frozen
class Lowered:
    """The decisions that follow from a plan. Bytes: of weights, of caches, of the arena.

    scratch: bytes for one thread; shared_scratch: bytes that all share. vocab: tokens that the model knows.
    fallbacks: bindings through a scalar reference, and why.
    """

    plan: PlanRef
    bindings: tuple[Binding, ...]
    fallbacks: tuple[str, ...]
    weights: int
    kv: int
    arena: int
    scratch: int
    shared_scratch: int
    vocab: int


@attrs.frozen
class Because:
    """Why there are these weights and this kernel pack, and the profile's lines by the keys that lowering names.

    decoders: the model plugins that the profile could name.
    """

    weights: str
    pack: str
    lines: Mapping[str, str]
    decoders: frozenset[str]


def because_of(profile: Profile, catalog: Catalog, pack: str) -> Because:
    """What messages say of this profile. pack: why its kernel pack is there."""
    keys = (("limits", "context"), ("limits", "spill"), ("limits", "kv_dtype"), ("device", "count"))
    lines = {f"{section}.{key}": profile.reason(catalog.root, section, key) for section, key in keys}
    return Because(profile.reason(catalog.root, "model", "weights"), pack, lines, decoders.names(catalog))


def plan_params(
    solution: Solution,
    files: Mapping[str, ModelFile],
    target: Target,
    limits: Limits,
    format_: str,
    fallback_ops: tuple[str, ...],
) -> dict[str, Any]:
    """The parameters of the `plan` step, but for the digest that it must find.

    format_: of weights, as profiles say. ranks: where there are several.
    """
    ranks = target.device.count if target.device else 1
    return {
        "checkpoint": described(files, format_),
        "model": f"plugins/{provider(solution, 'model.decoder').id}",
        "kernels": f"plugins/{pack_of(solution).id}",
        "isa": processor(pack_of(solution), target),
        "limits": {"tokens": limits.tokens, "seqs": limits.batch, "context": limits.context},
        "kv_dtype": limits.kv_dtype,
        "page_size": PAGE_SIZE,
        "spill": limits.spill,
        "fallback_ops": sorted(fallback_ops),
        **({"ranks": ranks} if ranks > 1 else {}),
    }


def lower(
    params: Mapping[str, Any],
    artifacts: Mapping[str, Artifact],
    report: Report,
    place: Callable[[str], Path],
    fetch: Fetch,
    because: Because,
    stored: str = "",
) -> Lowered:
    """Lower the model; raises ResolutionError where config, tensors, limits and kernels do not go together.

    artifacts: by name. place: where a tree that the parameters name lies. stored: a format that a checkpoint of the
    same model might have, to know what would follow; '' for what it has.
    """
    from pih_runtime import plan as plans
    from pih_steps import lower as lowering
    from pih_steps.lower import sources
    from pih_steps.lower.plugin import load_graph

    wanted, trees = inputs(params)
    files = {name: fetch(artifacts[name]) for name in wanted}
    folders = {name: place(name) for name in trees}

    def lowered(ranks: int) -> Any:
        checkpoint = _stored_as(stored, sources.described(params["checkpoint"], files, folders))
        return lowering.lower(
            checkpoint,
            load_graph(place(params["model"])),
            lowering.read_report(place(params["kernels"]), params["isa"]),
            plans.Limits(**params["limits"]),
            params["kv_dtype"],
            params["page_size"],
            params["fallback_ops"],
            params["spill"],
            ranks,
        )

    ranks = params.get("ranks", 1)
    try:
        result = lowered(ranks)
    except (BuildError, ResolutionError) as problem:
        fewer = 0 if problem.where in because.lines else _fewer(ranks, lowered)
        other = "" if problem.where in because.lines else decoders.meant(params, files, folders, because.decoders)
        cures = (f"device.count = {fewer}" if fewer else "", f'model.plugin = "{other}"' if other else "", problem.fix)
        fix = ", or ".join(filter(None, cures))
        asked = f",\n  and that is one rank's part, as {because.lines['device.count']}" if fewer else ""
        told = _no_kernel if isinstance(problem, lowering.NoKernelError) else _no_plan
        raise told(problem, because, asked, fix) from problem
    plan = result.plan
    bindings = tuple(_binding(bound) for bound in result.bindings)
    return Lowered(
        plan=PlanRef(sha256=lowering.plan_sha256(plan), calls=len(plan.calls)),
        bindings=bindings,
        fallbacks=result.fallbacks,
        weights=plan.weight_bytes,
        kv=plan.cache_bytes,
        arena=plan.arena_bytes,
        scratch=max((_scratch(binding, report) for binding in bindings), default=0),
        shared_scratch=max((_shared_scratch(binding, report) for binding in bindings), default=0),
        vocab=plan.vocab,
    )


def smaller_formats(report: Report, isa: str) -> tuple[str, ...]:
    """Formats of weights that the pack multiplies fast, from the largest to the smallest."""
    from pih_steps.lower.formats import BLOCKS, bits

    fast = {
        kernel.weight for kernel in report.kernel if kernel.op == "linear" and kernel.template and isa in kernel.isa
    }
    return tuple(sorted(fast & set(BLOCKS), key=bits, reverse=True))


def _stored_as(format_: str, checkpoint: Any) -> Any:
    """The checkpoint as if it stored its matrices in this format, those that are not smaller already.

    A format that is made from what is stored is made, or BuildError says why it cannot be.
    """
    from pih_steps.lower import quantized
    from pih_steps.lower.formats import bits

    if not format_:
        return checkpoint
    if format_ in quantized.FORMATS:
        return quantized.stored_as(format_, checkpoint)
    tensors = {
        name: replace(tensor, format=format_)
        if len(tensor.shape) > 1 and bits(format_) < bits(tensor.format)
        else tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return replace(checkpoint, tensors=tensors)


def processor(pack: Manifest, target: Target) -> str:
    """What the pack's kernels are compiled for: the devices' compute capability, or the host's instruction set."""
    return target.device.sm if pack.target.sm and target.device else target.isa


def provider(solution: Solution, capability: str) -> Manifest:
    """The chosen plugin that serves a capability which every deployment has."""
    return next(plugin for plugin in solution.plugins if capability in plugin.provides)


def pack_of(solution: Solution) -> Manifest:
    """Whose kernels the plan is bound to: the kernel pack, or a backend that runs every op itself."""
    packs = [plugin for plugin in solution.plugins if plugin.kind == "kernels"]
    return packs[0] if packs else provider(solution, "backend.device")


def checkpoint(files: Mapping[str, ModelFile], format_: str) -> dict[str, Any]:
    """The checkpoint with its bytes, as `pih_steps.lower.sources` opens it."""
    return _in_format(_checkpoint(files), format_)


def described(files: Mapping[str, ModelFile], format_: str) -> dict[str, Any]:
    """The checkpoint as a plan needs it: without the weights' bytes where a tensor table says enough."""
    if "tensors" not in files:
        return checkpoint(files, format_)
    table = {"format": "description", "config": files["config"].reference, "tensors": files["tensors"].reference}
    return _in_format(table, format_)


def _in_format(source: dict[str, Any], format_: str) -> dict[str, Any]:
    return source if format_ == "stored" else {**source, "weights": format_}


def _checkpoint(files: Mapping[str, ModelFile]) -> dict[str, Any]:
    weights = files["weights"]
    if weights.source.kind == "synthetic":
        shape = {"config": weights.beside("config.json"), "tensors": weights.beside("tensors.json")}
        return {"format": "synthetic", **shape, "seed": weights.source.seed}
    if weights.is_gguf:
        return {"format": "gguf", "file": weights.reference}
    return {"format": "safetensors", "files": [weights.reference], "config": files["config"].reference}


def inputs(params: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(artifacts, trees) that the files in a step's parameters lie in."""
    return tuple(sorted(set(_named(params, "artifact")))), tuple(sorted(set(_named(params, "tree"))))


def _named(data: Any, key: str) -> list[str]:
    if isinstance(data, dict):
        return ([data[key]] if key in data else []) + [name for item in data.values() for name in _named(item, key)]
    return [name for item in data for name in _named(item, key)] if isinstance(data, list) else []


def _fewer(ranks: int, lowered: Callable[[int], Any]) -> int:
    """The most ranks below these that the model can be lowered for; 0 where there are none."""
    for count in range(ranks - 1, 0, -1):
        try:
            lowered(count)
        except (BuildError, ResolutionError):
            continue
        return count
    return 0


def _no_kernel(problem: Any, because: Because, asked: str, fix: str) -> ResolutionError:
    causes = "".join(f",\n  and {cause}" for cause in problem.causes)
    return ResolutionError(
        f"Because {because.weights},\n  and its plan wants {problem.wanted}{asked},\n"
        f"  and the kernels are those of {problem.where}, as {because.pack}{causes}.\n"
        "  So no kernel runs it.",
        fix=fix,
    )


def _no_plan(problem: BuildError | ResolutionError, because: Because, asked: str, fix: str) -> ResolutionError:
    reason = because.lines.get(problem.where, because.weights)
    place = f"{problem.where}: " if problem.where and problem.where not in because.lines else ""
    return ResolutionError(
        f"Because {reason},\n  and {place}{problem.what}{asked}.\n  So no plan comes of it.", fix=fix
    )


def _binding(bound: Any) -> Binding:
    fields = {field.name: getattr(bound, field.name) for field in attrs.fields(Binding)}
    return structure({**fields, "constants": dict(fields["constants"])}, Binding)


def _scratch(binding: Binding, report: Report) -> int:
    """Bytes of private scratch that a thread needs for this kernel; the report counts float32 values."""
    kernels = [kernel for kernel in report.kernel if _serves(kernel, binding)]
    floats = (sum(binding.constants[name] * many for name, many in kernel.scratch.items()) for kernel in kernels)
    return 4 * max(floats, default=0)


def _shared_scratch(binding: Binding, report: Report) -> int:
    """Bytes of scratch that all blocks of a kernel share; the report counts float32 values."""
    asked = [
        kernel.shared_scratch
        for kernel in report.kernel
        if _serves(kernel, binding) and binding.template == kernel.template
    ]
    asked += [
        kernel.shared_scratch
        for kernel in report.fused
        if ("+".join(kernel.ops), kernel.template) == (binding.op, binding.template)
    ]
    return 4 * sum(prod(binding.constants[name] for name in names) for names in asked if names)


def _serves(kernel: Kernel, binding: Binding) -> bool:
    """Whether the binding is one of this entry of the report; no two entries have form and template in common."""
    form = (kernel.op, kernel.weight, kernel.layout, kernel.activation)
    bound = (binding.op, binding.weight, binding.layout, binding.activation)
    return form == bound and binding.template in (kernel.template, kernel.reference)
