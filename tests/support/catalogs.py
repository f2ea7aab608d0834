"""Catalogs of plugins for the solver: in layers, in ladders, as pigeons that want a hole each."""

import random

from pih.catalog import Manifest, RuntimePart
from pih.resolve.rules import Need


def plugin(identity, provides, requires=None, **more):
    runtime = RuntimePart("p", "p:start")
    fields = {"version": "1.0", "abi": 1, "summary": "", "runtime": runtime, **more}
    return Manifest(id=identity, kind=identity.split("/")[0], provides=provides, requires=requires or {}, **fields)


def need(capability, specifier=">=1.0,<2", **more):
    return Need(capability, specifier, reason="x.toml:1 it", **more)


def layered(depth, width):
    """`depth` capabilities, each plugin of one requiring the next; `width` plugins for each."""
    return [
        plugin(
            f"l{level}/p{number}", {f"c{level}": f"1.{number}"}, {f"c{level + 1}": ">=1"} if level + 1 < depth else {}
        )
        for level in range(depth)
        for number in range(width)
    ]


def ladder(seed, depth, beside, width, span):
    """`depth` levels of `beside` capabilities with `width` versions; each requires two of the next, `span` versions."""
    dice = random.Random(seed)
    plugins = []
    for level in range(depth):
        below = [f"c{level + 1}.{number}" for number in range(beside)] if level + 1 < depth else []
        for number in range(beside):
            for version in range(width):
                requires = {}
                for name in dice.sample(below, 2) if below else ():
                    low = dice.randint(0, max(0, width - span))
                    requires[name] = f">=1.{low},<1.{low + span}"
                plugins.append(
                    plugin(f"l{level}/c{number}v{version}", {f"c{level}.{number}": f"1.{version}"}, requires)
                )
    return plugins, [need(f"c0.{number}", ">=1") for number in range(beside)]


def pigeons(count, holes):
    """`count` needs with `holes` plugins each, of which no two that stand for one hole go together."""
    plugins = [
        plugin(
            f"k/p{number}h{hole}",
            {f"c{number}": "1"},
            conflicts={f"k/p{other}h{hole}": "" for other in range(count) if other != number},
        )
        for number in range(count)
        for hole in range(holes)
    ]
    return plugins, [need(f"c{number}", ">=1") for number in range(count)]
