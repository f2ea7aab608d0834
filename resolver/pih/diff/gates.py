"""Gates: what a change may not do. A tripped one is a finding, not a failure of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from pih.diff import amounts
from pih.diff.amounts import shown, signed
from pih.diff.difference import Difference, Sizes
from pih_runtime.errors import UsageError


@attrs.frozen
class Tripped:
    """A gate that did not hold. gate: as it was asked for."""

    gate: str
    why: str


def tripped(found: Difference, growth: Iterable[str], kinds: Iterable[str]) -> tuple[Tripped, ...]:
    """Every gate that does not hold. growth: amounts or shares, each a limit. kinds: names of KINDS.

    Raises UsageError (exit 2) for what is no limit or kind, and for a limit on sizes that are not known.
    """
    failed: list[Tripped] = []
    for text in growth:
        failed += _growth(found, text)
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--fail-on {kind!r} is not possible", fix=f"one or more of {','.join(KINDS)}")
        failed += (Tripped(f"--fail-on {kind}", why) for why in KINDS[kind](found))
    return tuple(failed)


def _growth(found: Difference, text: str) -> Iterator[Tripped]:
    amount, share = amounts.parsed(text), amounts.share(text)
    if amount is None and share is None:
        raise UsageError(f"--max-growth {text!r} is not an amount", fix=f"write it like {amounts.FORMS} or 2%")
    if found.image is None:
        raise UsageError(
            "--max-growth cannot be judged: a lock knows no sizes", fix="compare two bundles, or leave it out"
        )
    for sizes in (found.image.size, found.image.compressed):
        if sizes.old is None or sizes.new is None:
            what = "--max-growth cannot be judged: what is unpacked, or in docker's store, has no compressed size"
            raise UsageError(what, fix="compare two layouts or archives, or leave it out")
        allowed = amount if amount is not None else int(sizes.old * (share or 0.0))
        if sizes.growth > allowed:
            yield Tripped(f"--max-growth {text}", _grown(found, sizes, allowed))


def _grown(found: Difference, sizes: Sizes, allowed: int) -> str:
    rows = found.image.components if found.image else ()
    most = [f"{row.name} {signed(row.size.growth)}" for row in rows if row.size.growth > 0][:3]
    why = f" ({', '.join(most)})" if most else ""  # the same files may compress worse beside others
    return (
        f"{signed(sizes.growth)} {sizes.name}, {shown(sizes.growth - allowed)} over the {shown(allowed)} allowed{why}"
    )


def _new_components(found: Difference) -> Iterator[str]:
    for name in found.new_components:
        yield f"{name} is new"


def _licences(found: Difference) -> Iterator[str]:
    """Another licence of what was there, and one that came with something new and was nowhere before."""
    for row in found.licences:
        yield f"{row.name}: {row.old} → {row.new}"
    for row in found.new_licences:
        yield f"{row.name} is new, under {row.new}"


def _fallbacks(found: Difference) -> Iterator[str]:
    for row in found.fallbacks:
        if row.new:
            yield row.name


def _permissions(found: Difference) -> Iterator[str]:
    for row in found.permissions:
        if row.new:
            yield row.name


KINDS: dict[str, Callable[[Difference], Iterator[str]]] = {
    "new-component": _new_components,
    "licence": _licences,
    "fallback": _fallbacks,
    "permission": _permissions,
}
