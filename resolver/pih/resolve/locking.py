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
from pih.resolve import artifacts, budget, explain, fits, graph, outside, spill
from pih.resolve.choice import choose
from pih.resolve.levers import levers_of, transports
from pih.resolve.lowered import lowered
from pih.resolve.lowering import Fetch, Lowered, because_of, pack_of, plan_params
from pih.resolve.model import ModelFile, Pin, model_files
from pih.resolve.order import providers_of, start_order
from pih.resolve.outcome import Solution
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
    held = previous.artifacts if previous else ()
    files = model_files(profile, root, pins, held, pin)
    explained = [(plugin, explain.reasons(plugin, solution.served)) for plugin in solution.plugins]
    pins = outside.pinned(pins, solution.plugins, catalog)
    carried = {
        plugin.id: artifact
        for plugin, reasons in explained
        if (artifact := outside.artifact_of(plugin, catalog, reasons)) is not None
    }
    wanted = (
        *artifacts.wanted_by_target(profile.reason(root, "target", "os")),
        *artifacts.wanted_by_plugins(explained),
        *artifacts.wanted_by_lowering(profile.reason(root, "model", "weights")),
    )
    chosen = (*artifacts.choose(wanted, files.values(), pins, held), *carried.values())
    limits = Limits(**{**unstructure(intent.limits), "spill": spill.bytes_of(profile, root, solution, catalog)})

    because = because_of(profile, root, explain.reasons(pack_of(solution), solution.served)[0])

    def params(sizes: Limits, machine: Target) -> dict[str, Any]:
        return plan_params(solution, files, machine, sizes, intent.weights.format, intent.kernels.fallback_ops)

    by_name = {artifact.name: artifact for artifact in chosen}

    def lowered_for(parameters: Mapping[str, Any], stored: str = "") -> Lowered:
        report = pack_of(solution).report
        return lowered(parameters, root, by_name, carried, report, fetch, because, memo, stored)

    @cache
    def measure(size: fits.Size) -> locks.Budget:
        device = attrs.evolve(target.device, count=size.devices) if target.device else None
        machine = attrs.evolve(target, threads=size.threads, device=device)
        plugins = solution.plugins + (transports(solution, catalog, target) if size.devices > 1 else ())
        return budget.budget_of(lowered_for(params(size.limits, machine), size.weights), plugins, machine, size.limits)

    plan = params(limits, target)
    made = lowered_for(plan)
    budgeted = budget.budget_of(made, solution.plugins, target, limits)
    budget.check(
        budgeted,
        fits.Size(limits, target.threads, intent.device.count),
        measure,
        lambda: levers_of(solution, catalog, target),
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
        plugins=tuple(_plugin(plugin, reasons, solution, catalog) for plugin, reasons in explained),
        start_order=start_order(solution),
        bindings=made.bindings,
        fallbacks=made.fallbacks,
        budget=budgeted,
        plan=made.plan,
        artifacts=chosen,
        build=_placed(
            graph.build_graph(profile, solution, files, plan, made, artifacts.seed_of(chosen, pins, fetch)), carried
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
