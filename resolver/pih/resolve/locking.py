"""From a profile to its lock: every decision of one deployment, made once and written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from pih import lock as locks
from pih.catalog import Catalog, Manifest
from pih.lock import Limits, Lock, Plugin, ProfileRef, Requirement, RuntimeHalf, Service
from pih.pins import Pins
from pih.profile import Profile
from pih.resolve import artifacts, budget, explain, graph
from pih.resolve.lowering import Fetch, inputs, lower, pack_of, plan_params
from pih.resolve.memo import remembered
from pih.resolve.model import ModelFile, Pin, model_files
from pih.resolve.solve import DeadEnd, Need, Solution, solve, start_order
from pih.resolve.target import misfit, target_of
from pih.structure import unstructure
from pih_runtime.errors import ResolutionError


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
    solution = solve(roots(profile, root), catalog.plugins, lambda plugin: misfit(plugin, target))
    if isinstance(solution, DeadEnd):
        raise explain.failure(solution, catalog.plugins)
    order = start_order(solution)
    if not order:
        raise _cycle(solution)
    held = previous.artifacts if previous else ()
    files = model_files(profile, root, pins, held, pin)
    explained = [(plugin, explain.reasons(plugin, solution.served)) for plugin in solution.plugins]
    wanted = (
        *artifacts.wanted_by_target(profile.reason(root, "target", "os")),
        *artifacts.wanted_by_plugins(explained),
        *artifacts.wanted_by_lowering(profile.reason(root, "model", "weights")),
    )
    chosen = artifacts.choose(wanted, files.values(), pins, held)
    limits = Limits(**unstructure(intent.limits))
    plan = plan_params(solution, files, target.isa, limits)
    names, trees = inputs(plan)
    lowered = remembered(
        memo,
        root,
        plan,
        {artifact.name: artifact.sha256 for artifact in chosen if artifact.name in names},
        (plan["model"], plan["kernels"], *trees),
        lambda: lower(plan, files, pack_of(solution).report, root, fetch),
    )
    budgeted = budget.budget_of(lowered, solution.plugins, target)
    budget.check(budgeted, limits, profile.reason(root, "target", "memory"))
    return Lock(
        schema=locks.SCHEMA,
        pih=locks.PIH,
        profile=ProfileRef(name=profile.name, file=profile.file(root), sha256=profile.sha256),
        catalog_sha256=catalog.sha256,
        target=target,
        model={"plugin": f"model/{intent.model.plugin}"} | {role: _described(file) for role, file in files.items()},
        limits=limits,
        service=Service(**unstructure(intent.service)),
        delivery=intent.weights.delivery,
        plugins=tuple(_plugin(plugin, reasons, solution) for plugin, reasons in explained),
        start_order=order,
        bindings=lowered.bindings,
        fallbacks=(),
        budget=budgeted,
        plan=lowered.plan,
        artifacts=chosen,
        build=graph.build_graph(profile, solution, files, plan, lowered, artifacts.seed_of(chosen, pins, fetch)),
    )


def roots(profile: Profile, root: Path) -> tuple[Need, ...]:
    """What the profile itself asks for, each with its line."""
    intent = profile.intent
    needs = [
        _named("model.decoder", f"model/{intent.model.plugin}", profile.reason(root, "model", "plugin")),
        _named("backend.device", f"backend/{intent.backend.plugin}", profile.reason(root, "backend", "plugin")),
    ]
    if intent.features.openai:
        needs.append(_named("surface.http", "", profile.reason(root, "features", "openai")))
    if intent.features.health:
        needs.append(_named("health.probe", "", profile.reason(root, "features", "health")))
    return tuple(needs)


def _named(capability: str, plugin: str, reason: str) -> Need:
    return Need(capability, ">=1.0,<2", plugin=plugin, reason=reason)


def _plugin(plugin: Manifest, reasons: tuple[str, ...], solution: Solution) -> Plugin:
    served = {need.capability: provider.id for need, provider in solution.served if need.by == plugin.id}
    requires = tuple(
        Requirement(capability, specifier, served[capability])
        for capability, specifier in sorted(plugin.requires.items())
    )
    runtime = RuntimeHalf(**attrs.asdict(plugin.runtime, recurse=False)) if plugin.runtime else None
    return Plugin(
        id=plugin.id,
        version=plugin.version,
        kind=plugin.kind,
        abi=plugin.abi,
        source="workspace",
        provides=dict(sorted(plugin.provides.items())),
        requires=requires,
        reasons=reasons,
        runtime=runtime,
        settings={},
        permissions=locks.Permissions(**attrs.asdict(plugin.permissions, recurse=False)),
    )


def _described(file: ModelFile) -> dict[str, Any]:
    return {"source": file.source.text, **file.reference}


def _cycle(solution: Solution) -> ResolutionError:
    ids = ", ".join(plugin.id for plugin in solution.plugins if plugin.runtime is not None)
    return ResolutionError(
        f"Because each of some of {ids} requires another of them,\n  So none of them can start first.",
        fix="remove one of the requirements from its plugin.toml",
    )
