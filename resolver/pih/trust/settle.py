"""One offer for each plugin and version: whose files a name stands for, of all places that offer it.

This alone decides between places; the resolver then chooses between plugins. In this order:

1. What the profile names by its place: for an id that it provides, nothing else is a candidate.
2. What the lock before has, while the place it was locked from has it, on the same word. A plugin that a key has
   signed stays that publisher's: nobody else's is a candidate until `--upgrade` asks for it.
3. Where only the places differ: what is not withdrawn, then installed packages, then catalogs by their name.

Two places with other files of one version, and nothing of the above between them, are rivals: neither is chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import attrs
from packaging.version import Version

from pih.catalog import Catalog, Manifest
from pih.origin import LOCAL, Held, Origin, Refused
from pih.trust import places
from pih.trust.find import Found
from pih.trust.keyring import Keyring
from pih.trust.matrix import Unfit, unfit


def settled(own: Catalog, found: Iterable[Found | Refused], held: Sequence[Held], keyring: Keyring) -> Catalog:
    """`own` with what was found outside, each as a candidate or as refused. held: what the lock before has."""
    items = list(found)
    judged = _withdrawn([item for item in items if isinstance(item, Found)])
    refused = [item for item in items if isinstance(item, Refused)]
    offers: defaultdict[tuple[str, Version], list[Found]] = defaultdict(list)
    reserved, before = {plugin.id for plugin in own.plugins}, {item.id: item for item in held}
    named = {item.content.manifest.id: item.source for item in reversed(judged) if item.entry >= 0}
    releases = [item.content.manifest for item in judged]
    for item in judged:
        identity = item.content.manifest.id
        problem = _not_believed(item, reserved) or _another_asked_for(item, named.get(identity, ""))
        problem = problem or _another_publisher(item, before.get(identity), keyring)
        problem = problem or unfit(item.content.manifest, releases)
        if problem is None:
            offers[item.content.manifest.id, Version(item.content.manifest.version)].append(item)
        else:
            refused.append(_refused(item, problem))
    plugins: list[Manifest] = list(own.plugins)
    origins: dict[tuple[str, str], Origin] = {}
    for (identity, _), rivals in offers.items():
        locked = before.get(identity)
        first, *rest = sorted(rivals, key=partial(_order, before=locked))
        other = [item for item in rest if item.content.sha256 != first.content.sha256]
        manifest = first.content.manifest
        plugins.append(manifest)
        copies = tuple(_said(item) for item in rest if item not in other)
        origins[manifest.id, manifest.version] = _origin(first, locked, other, copies)
        refused += [_refused(item, _beside(first)) for item in other]
    return attrs.evolve(own, plugins=tuple(plugins), origins=origins, refused=tuple(refused))


def _not_believed(item: Found, reserved: set[str]) -> Unfit | None:
    """Trust comes first: nothing else of an offer is believed before. reserved: ids of PIH's own plugins."""
    if not item.verdict.key:
        return Unfit(item.verdict.why, item.verdict.fix)
    if item.content.manifest.id in reserved:
        return Unfit("that id is a plugin of PIH's own", "its author must give it another id")
    return None


def _another_asked_for(item: Found, named: str) -> Unfit | None:
    """named: where the profile names a plugin of this id, '' where it does not."""
    if not named or item.entry >= 0:
        return None
    return Unfit(
        f"the profile names {named} for {item.content.manifest.id}",
        "take that [[plugins]] entry out of the profile to choose among your catalogs",
    )


def _another_publisher(item: Found, before: Held | None, keyring: Keyring) -> Unfit | None:
    key = item.verdict.key
    if before is None or LOCAL in (before.trust, key) or keyring.succeeds(key, before.trust):
        return None
    return Unfit(
        f"it is signed by {key}, and {before.id} was locked on the word of {before.trust}",
        f"to change whose plugin it is: pih lock --upgrade {before.id}",
    )


def _withdrawn(judged: list[Found]) -> list[Found]:
    """What a publisher withdraws in one catalog is withdrawn in all that the same key has signed, and in no other."""

    def key(item: Found) -> tuple[str, str]:
        return item.content.sha256, item.verdict.key

    why = {key(item): item.content.manifest.yanked for item in judged if item.content.manifest.yanked}
    return [
        attrs.evolve(item, content=attrs.evolve(held, manifest=attrs.evolve(held.manifest, yanked=why[key(item)])))
        if key(item) in why
        else item
        for item in judged
        for held in [item.content]
    ]


def _order(item: Found, before: Held | None) -> tuple[bool, bool, int, bool]:
    """The offer to take comes first; where that leaves several, the one that was found first."""
    same = before is not None and item.content.sha256 == before.sha256
    named = item.entry if item.entry >= 0 else 1 << 16
    return not _is(item, before), not same, named, bool(item.content.manifest.yanked)


def _is(item: Found, before: Held | None) -> bool:
    """Whether this is what the lock before has: the files, the place, and whose word there is for them."""
    if before is None or (item.content.manifest.version, item.verdict.key) != (before.version, before.trust):
        return False
    return item.content.sha256 == before.sha256 and places.same(item.place, before.place)


def _origin(first: Found, before: Held | None, other: list[Found], copies: tuple[str, ...]) -> Origin:
    kept = _is(first, before)
    same_files = before is not None and first.content.sha256 == before.sha256
    decided = first.entry >= 0 or same_files or first.content.manifest.yanked
    usable = () if decided else (item for item in other if not item.content.manifest.yanked)
    return Origin(
        source=first.source,
        place=first.place,
        trust=first.verdict.key,
        sha256=first.content.sha256,
        size=first.content.size,
        pins=first.content.pins,
        entry=first.entry,
        held=kept,
        rivals=tuple(_said(item) for item in usable),
        copies=copies,
    )


def _said(item: Found) -> str:
    word = "trusted by the profile" if item.verdict.key == LOCAL else f"signed by {item.verdict.key}"
    return f"{item.source} ({word})"


def _beside(first: Found) -> Unfit:
    return Unfit(f"{first.source} has other files of the same version", "keep one of the two, or number them apart")


def _refused(item: Found, problem: Unfit) -> Refused:
    manifest = item.content.manifest
    about = (manifest.id, manifest.version, item.source, tuple(manifest.provides))
    return Refused(*about, problem.why, problem.fix, problem.table, item.entry)
