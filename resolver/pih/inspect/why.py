"""`why`: from a name to the thing it stands for, and from that to every chain up to a line of the profile."""

from __future__ import annotations

import difflib
import heapq
import itertools
import re
from collections.abc import Callable
from typing import Any

import attrs

from pih.inspect.causes import Graph, Key, Thing, module_of
from pih.inspect.reasons import Chain
from pih_runtime.errors import LockError, UsageError

LIMIT = 100  # chains; what more there are, they say the same in other words
_STEPS = 20_000
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


@attrs.frozen
class Answer:
    """Why a thing is there. chains: the shortest first; more: there are further ones.

    component: what a file, a kernel or a plugin from outside is of, with the shortest chain of that.
    """

    thing: Thing
    chains: tuple[Chain, ...]
    more: bool
    component: tuple[Thing, Chain] | None


def answers(graph: Graph, name: str) -> tuple[Answer, ...]:
    """The answer for what `name` stands for; several for a digest that several files have, none where it is unknown.

    Raises UsageError (exit 2) for a name of several things.
    """
    return tuple(_answer(graph, thing) for thing in _named(graph, name))


def unknown(graph: Graph, name: str, where: str) -> UsageError:
    """The error for a name that nothing has, with those that are near. where: what was searched."""
    near = _near(graph, name)
    others = "name a plugin, capability, artifact, op, kernel, file or digest of it; `pih inspect` lists them"
    return UsageError(
        f"nothing here is called {name}",
        where=where,
        fix=f"did you mean {' or '.join(near)}? else {others}" if near else others,
    )


def chains(graph: Graph, key: Key) -> tuple[tuple[Chain, ...], bool]:
    """Every chain from the profile to a thing, without loops, the shortest first; and whether there are more."""
    found: dict[Chain, None] = {}
    order = itertools.count()
    open_ends: list[tuple[int, int, Chain, Key | None, frozenset[Key]]] = [(0, -1, (), key, frozenset([key]))]
    for _ in range(_STEPS):
        if not open_ends or len(found) == LIMIT:
            break
        _, _, words, here, passed = heapq.heappop(open_ends)
        if here is None:
            found.setdefault(words)
            continue
        for cause in graph.causes.get(here, ()):
            if cause.parent is None or cause.parent not in passed:
                longer = (*cause.words, *words)
                beyond = passed | {cause.parent} if cause.parent else passed
                heapq.heappush(open_ends, (len(longer), next(order), longer, cause.parent, beyond))
    return tuple(found), bool(open_ends)


def reasoned(graph: Graph, key: Key) -> tuple[tuple[Chain, ...], bool]:
    """As `chains`; raises LockError where there is none, which no lock of this program leads to."""
    found, more = chains(graph, key)
    if not found:
        raise LockError(f"the lock gives no reason for {' '.join(key)}", fix="write the lock again: pih lock")
    return found, more


def renewed(answer: Answer, renew: Callable[[Chain], Chain]) -> Answer:
    """The answer with each of its chains as `renew` gives it."""
    component = answer.component
    above = (component[0], renew(component[1])) if component else None
    return attrs.evolve(answer, chains=tuple(map(renew, answer.chains)), component=above)


def as_json(answer: Answer) -> dict[str, Any]:
    """For scripts. chains: lists of links; the first link of each is the profile's line."""
    component = answer.component
    of = {"kind": component[0].kind, "name": component[0].name, "chain": list(component[1])} if component else None
    return {
        "kind": answer.thing.kind,
        "name": answer.thing.name,
        "about": answer.thing.about,
        "digest": answer.thing.digest,
        "component": of,
        "chains": [list(chain) for chain in answer.chains],
        "more": answer.more,
    }


def _answer(graph: Graph, thing: Thing) -> Answer:
    found, more = reasoned(graph, thing.key)
    component = graph.things.get(thing.component) if thing.component else None
    return Answer(thing, found, more, (component, reasoned(graph, component.key)[0][0]) if component else None)


def _named(graph: Graph, name: str) -> list[Thing]:
    """The things of this name, which may have their kind before it, as messages write it."""
    found = _among(list(graph.things.values()), name)
    kinds = {thing.kind for thing in graph.things.values() if name.startswith(f"{thing.kind} ")}
    if found or not kinds:
        return found
    kind = max(kinds, key=len)
    return _among([thing for thing in graph.things.values() if thing.kind == kind], name.removeprefix(f"{kind} "))


def _among(things: list[Thing], name: str) -> list[Thing]:
    """By name, then by path, end of a path, module, digest: the first that fits."""
    exact = [thing for thing in things if name in (thing.name, thing.name.removeprefix("/"))]
    if exact:
        return _one(name, exact)
    files = [thing for thing in things if thing.kind == "file"]
    ends = [thing for thing in files if thing.name.endswith(f"/{name}")]
    if ends:
        return _one(name, ends)
    modules = [thing for thing in files if name and module_of(thing.name) == name]
    if modules:
        return _one(name, modules)
    digest = _DIGEST.fullmatch(name.lower())
    begun = [thing for thing in things if digest and thing.digest.startswith(f"sha256:{digest[1]}")]
    return begun if len({thing.digest for thing in begun}) <= 1 else _one(name, begun)


def _one(name: str, things: list[Thing]) -> list[Thing]:
    if len(things) > 1:
        shown = [f"{thing.kind} {thing.name}" + (f" ({thing.digest[:19]})" if thing.digest else "") for thing in things]
        rest = f", and {len(shown) - 8} more" if len(shown) > 8 else ""
        apart = len({thing.kind for thing in things}) == len(things) and {thing.name for thing in things} == {name}
        kind = f'say of which kind: "{things[0].kind} {name}"'
        raise UsageError(
            f"{name} stands for {len(things)} things: {', '.join(shown[:8])}{rest}",
            fix=kind if apart else "give the whole path, or more of the digest",
        )
    return things


def _near(graph: Graph, name: str) -> list[str]:
    known = [thing.name.rpartition("/")[2] if thing.kind == "file" else thing.name for thing in graph.things.values()]
    last = name.rpartition("/")[2]
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6) + difflib.get_close_matches(last, known, n=3)
    parts = [word for word in known if last in word.split("/")]
    within = [word for word in known if last and last in word]
    return list(dict.fromkeys([*parts, *close, *within]))[:3]
