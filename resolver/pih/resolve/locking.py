"""From a profile to its lock: every decision of one deployment, made once and written down."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from pih import lock as locks
from pih import stale
from pih.catalog import Catalog, Manifest, fingerprint
from pih.lock import Artifact, BuildGraph, Limits, Lock, Plugin, ProfileRef, Requirement, Service, Target, Weights
from pih.pins import Pins
from pih.profile import Profile
from pih.resolve import budget, explain, fits, graph, outside, spill
from pih.resolve.artifacts import seed_of
from pih.resolve.choice import choose
from pih.resolve.levers import levers_of
from pih.resolve.lowered import lowered
from pih.resolve.lowering import Fetch, Lowered, because_of, pack_of, plan_params
from pih.resolve.model import ModelFile, Pin, model_files
from pih.resolve.order import providers_of, start_order
from pih.resolve.outcome import Solution
from pih.resolve.parts import Parts, parts_of
from pih.resolve.target import target_of
from pih.structure import unstructure


def lock(
    profile: Profile,
    catalog: Catalog,
    pins: Pins,
    previous: Lock | None,
    *,
    fetch: Fetch,
    pin: Pin,
    memo: Path | None = None,
) -> Lock:
    """Resolve. previous: the lock before, whose artifacts stay where they still serve.

    fetch: an artifact's file, brought here if it is not. pin: a model file that is not among the pins, from the
    user's registry. memo: a folder that keeps what lowering gave, so that locking again is quick.
    """
    intent, root = profile.intent, catalog.root
    target = target_of(profile)
    solution = choose(profile, catalog, target, previous)
    files = model_files(profile, root, pins, previous.artifacts if previous else (), pin)
    parts = parts_of(solution, profile, catalog, pins, previous, files)
    limits = Limits(**{**unstructure(intent.limits), "spill": spill.bytes_of(profile, root, solution, catalog)})
    because = because_of(profile, catalog, explain.reasons(pack_of(solution), solution.served)[0])

    def params(chosen: Solution, sizes: Limits, machine: Target) -> dict[str, Any]:
        return plan_params(chosen, files, machine, sizes, intent.weights.format, intent.kernels.fallback_ops)

    def lowered_for(made_of: Parts, parameters: Mapping[str, Any], stored: str = "") -> Lowered:
        by_name = {artifact.name: artifact for artifact in made_of.artifacts}
        report = pack_of(made_of.solution).report
        return lowered(parameters, root, by_name, made_of.carried, report, fetch, because, memo, stored)

    @cache
    def among(devices: int) -> tuple[Target, Parts]:
        """The same deployment on so many devices, which other plugins may join."""
        if devices == intent.device.count:
            return target, parts
        wider = profile.with_devices(devices)
        machine = attrs.evolve(target, device=target.device and attrs.evolve(target.device, count=devices))
        chosen = choose(wider, catalog, machine, previous)
        return machine, parts_of(chosen, wider, catalog, pins, previous, files)

    @cache
    def measure(size: fits.Size) -> locks.Budget:
        machine, made_of = among(size.devices)
        machine, chosen = attrs.evolve(machine, threads=size.threads), made_of.solution
        made = lowered_for(made_of, params(chosen, size.limits, machine), size.weights)
        return budget.budget_of(made, chosen.plugins, machine, size.limits)

    plan = params(solution, limits, target)
    made = lowered_for(parts, plan)
    budgeted = budget.budget_of(made, solution.plugins, target, limits)
    budget.check(
        budgeted,
        fits.Size(limits, target.threads, intent.device.count),
        measure,
        lambda: levers_of(solution, target),
        (profile.reason(root, "target", "memory"), profile.reason(root, "device", "memory")),
    )
    return Lock(
        schema=locks.SCHEMA,
        pih=locks.PIH,
        profile=ProfileRef(name=profile.name, file=profile.file(root), sha256=profile.sha256),
        target=target,
        model={"plugin": f"model/{intent.model.plugin}"} | {role: _described(file) for role, file in files.items()},
        limits=limits,
        service=Service(**unstructure(intent.service)),
        weights=Weights(**unstructure(intent.weights)),
        requires=tuple(
            Requirement(need.capability, need.specifier, plugin.id) for need, plugin in solution.served if not need.by
        ),
        plugins=tuple(_plugin(plugin, reasons, solution, catalog) for plugin, reasons in parts.explained),
        start_order=start_order(solution),
        bindings=made.bindings,
        fallbacks=made.fallbacks,
        budget=budgeted,
        plan=made.plan,
        artifacts=parts.artifacts,
        build=_placed(
            graph.build_graph(profile, solution, files, plan, made, seed_of(parts.artifacts, parts.pins, fetch)),
            parts.carried,
        ),
    )


def _placed(built: BuildGraph, carried: Mapping[str, Artifact]) -> BuildGraph:
    return attrs.evolve(built, steps=graph.recorded([outside.place(step, carried) for step in built.steps]))


def _plugin(plugin: Manifest, reasons: tuple[str, ...], solution: Solution, catalog: Catalog) -> Plugin:
    needs = plugin.optional | plugin.requires
    requires = tuple(
        Requirement(capability, needs[capability], provider.id)
        for capability, provider in sorted(providers_of(plugin, solution).items())
    )
    return Plugin(
        id=plugin.id,
        version=plugin.version,
        kind=plugin.kind,
        abi=plugin.abi,
        **outside.source_of(plugin, catalog),
        manifest=fingerprint(plugin),
        licence=plugin.licence,
        provides=dict(sorted(plugin.provides.items())),
        requires=requires,
        reasons=reasons,
        runtime=stale.runtime_half(plugin),
        settings={},
        permissions=stale.permissions(plugin),
    )


def _described(file: ModelFile) -> dict[str, Any]:
    return {"source": file.source.text, **file.reference}
