"""Words for the resolver: chains of reasons, and failures as "Because … So … To fix: …"."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from pih.catalog import Manifest
from pih.resolve.order import circle, providers_of
from pih.resolve.outcome import DeadEnd, Served, Solution
from pih.resolve.rules import Need, Refusal
from pih.structure import nearest
from pih_runtime.errors import ResolutionError

ARROW = " → "
_SHOWN = 5  # plugins that a message lists before it counts the rest


def chain(need: Need, served: Served) -> str:
    """How a need goes back to a line of the profile: `x.toml:7 … → model/llama requires model.text >=1.0,<2`."""
    parts: list[str] = []
    seen: set[str] = set()
    while need.by and need.by not in seen:
        parts.append(f"{need.by} requires {_wanted(need)}")
        seen.add(need.by)
        need = next(other for other, plugin in served if plugin.id == need.by)
    return ARROW.join([need.reason, *reversed(parts)])


def reasons(plugin: Manifest, served: Served) -> tuple[str, ...]:
    """Every chain that ends at this plugin, in the order of the search."""
    return tuple(chain(need, served) for need, provider in served if provider.id == plugin.id)


def failure(end: DeadEnd, plugins: tuple[Manifest, ...]) -> ResolutionError:
    """The error of a search that found nothing."""
    need = end.need
    if end.given_up:
        return _given_up(end)
    if need.plugin:
        named = any(plugin.id == need.plugin and need.capability in plugin.provides for plugin in plugins)
        if not named:
            return _unknown(need, plugins)
    refusals = [refusal for refusal in end.refusals if refusal.cause != "other"]
    why = chain(need, end.served)
    if not refusals:
        near = nearest(need.capability, {name for plugin in plugins for name in plugin.provides}, 0.8)
        meant = f"did you mean {near}? else " if near and near != need.capability else ""
        return ResolutionError(
            f"Because {why},\n  and no plugin provides {need.capability} at all.{_others(end)}\n"
            f"  So {_wanted(need)} cannot be served.",
            fix=f"{meant}add a plugin that provides {need.capability}, or do not ask for what needs it",
        )
    causes = [f"{item.plugin.id} {item.plugin.version} is out: {item.detail}" for item in refusals[:_SHOWN]]
    if len(refusals) > _SHOWN:
        causes.append(f"{len(refusals) - _SHOWN} more are out likewise")
    lines = "".join(f",\n  and {cause}" for cause in (*causes, *_second_chains(refusals, end.served)))
    return ResolutionError(
        f"Because {why}{lines}.{_others(end)}\n  So nothing serves {_wanted(need)}.",
        fix=_fix(need, refusals, why),
    )


def _given_up(end: DeadEnd) -> ResolutionError:
    return ResolutionError(
        f"Because {chain(end.need, end.served)},\n"
        "  and the plugins that could serve it stand against others, and those against others again,\n"
        f"  and in {end.steps} steps the search came to no end where all is served.\n"
        "  So it was given up, and whether there is a solution is not known.",
        fix="name the plugins that you want in selection.prefer, or take out plugins and catalogs that are not wanted",
    )


def cycle(solution: Solution) -> ResolutionError:
    """The error of plugins that require each other."""
    ids = circle(solution)
    members = {plugin.id: plugin for plugin in solution.plugins}
    lines = []
    for one, two in pairwise(ids):
        uses = providers_of(members[one], solution)
        capability = next(name for name, provider in uses.items() if provider.id == two)
        verb = "requires" if capability in members[one].requires else "uses"
        lines.append(f"{one} {verb} {capability} of {two if two != one else 'itself'}")
    because = ",\n  and ".join(lines)
    so = "none of them can start first" if len(lines) > 1 else "it would have to start before itself"
    return ResolutionError(
        f"Because {because}.\n  So {so}.",
        fix=f"take one of these requirements out of its plugin.toml, or choose another plugin than {ids[0]}",
    )


def _wanted(need: Need) -> str:
    return f"{need.capability} {need.specifier}".rstrip()


def _second_chains(refusals: Iterable[Refusal], served: Served) -> list[str]:
    """Why each chosen plugin that stands against a candidate is there."""
    others = {refusal.other.id: refusal.other for refusal in refusals if refusal.other is not None}
    return [f"{name} is there because {reasons(other, served)[0]}" for name, other in sorted(others.items())]


def _others(end: DeadEnd) -> str:
    """What became of the other plugins that could have served where this dead end's choice did."""
    if not end.need.by:
        return ""
    chosen = next((need for need, plugin in end.served if plugin.id == end.need.by), None)
    lines, seen = [], {end.need.by}
    for later in end.later:
        rival = next((plugin for need, plugin in later.served if need == chosen), None)
        if rival is not None and later.need.by == rival.id and rival.id not in seen:
            seen.add(rival.id)
            lines.append(
                f"\n  {rival.id} would not do either: it requires {_wanted(later.need)}, which nothing serves."
            )
    return "".join(lines)


def _unknown(need: Need, plugins: tuple[Manifest, ...]) -> ResolutionError:
    kind = need.plugin.split("/")[0]
    known = sorted({plugin.id for plugin in plugins if need.capability in plugin.provides})
    near = nearest(need.plugin, known)
    meant = f"did you mean {near}? " if near else ""
    return ResolutionError(
        f"Because {need.reason},\n"
        f"  and the catalog has no {kind} plugin {need.plugin} that provides {need.capability}.\n"
        f"  So {need.capability} cannot be served.",
        fix=f"{meant}the catalog has {', '.join(known) or f'no {kind} plugin at all'}",
    )


def _fix(need: Need, refusals: list[Refusal], why: str) -> str:
    """One cure for each cause, the first of each kind. why: the need's chain, from a line of the profile on."""
    file = why.split(":", 1)[0]
    lines = " or ".join(list(dict.fromkeys(refusal.line for refusal in refusals if refusal.line))[:_SHOWN])
    cures = {
        "target": f"in {file}, if the machine is so: {lines}",
        "version": f"bring a plugin whose {need.capability} is {need.specifier}",
        "abi": "bring the plugin's release for this PIH",
        "yanked": "bring a version that was not withdrawn",
        "unwanted": "let selection.prefer in the profile allow that version",
        "taken": "ask for features that need one provider only",
        "conflict": "leave out one of the two plugins",
        "excluded": "leave out one of the two plugins",
        "optional": "bring a version of one that works with the other",
        "listen": "ask for one of the two surfaces only",
    }
    return ", or ".join(dict.fromkeys(cures[refusal.cause] for refusal in refusals))
