"""A size budget that lies beside the code: limits for an image, its layers and its components.

    headroom = "5%"

    [total]
    unpacked = "139 MB"
    compressed = "116 MB"

    [layers.base]
    unpacked = "24.4 MB"

    [components]
    tokenizers = "8.41 MB"
    "*" = "500 kB"

`*` is the limit of each component that has none of its own, new ones first of all. Components have unpacked sizes
alone, since layers are compressed as a whole. [measured] is what `--update` saw, so that a failure can say what grew.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import attrs

from pih.diff import amounts
from pih.diff.amounts import shown, signed
from pih.diff.facts import Image
from pih_runtime.errors import UsageError

OTHER = "*"
_OTHER_LIMIT = "500 kB"
_HEADROOM = "5%"


@attrs.frozen
class Limit:
    """Amounts; None for no limit."""

    unpacked: str | None = None
    compressed: str | None = None


@attrs.frozen
class Budget:
    """A budget as its file has it. measured: bytes of each component when it was last updated."""

    headroom: str = _HEADROOM
    total: Limit = Limit()
    layers: dict[str, Limit] = attrs.field(factory=dict)
    components: dict[str, str] = attrs.field(factory=dict)
    measured: dict[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Row:
    """A size against its limit, in bytes. why: what grew, '' where the limit holds or nothing is known."""

    what: str
    size: int
    limit: int
    why: str = ""

    @property
    def over(self) -> int:
        """Bytes beyond the limit, 0 where it holds."""
        return max(0, self.size - self.limit)


def judged(budget: Budget, image: Image) -> tuple[Row, ...]:
    """Every size that has a limit. Raises UsageError for a limit on what it has not, or where there is none."""
    layers = {layer.name: layer for layer in image.layers}
    _check_names("layer", budget.layers.keys(), layers.keys())
    _check_names("component", budget.components.keys() - {OTHER}, {component.name for component in image.components})
    rows = [*_limited("total", budget.total, image.size, image.compressed, "all components", budget, image)]
    for name, limit in budget.layers.items():
        layer = layers[name]
        rows += _limited(f"layer {name}", limit, layer.size, layer.compressed, name, budget, image)
    for component in image.components:
        text = budget.components.get(component.name, budget.components.get(OTHER, ""))
        if text:
            fresh = budget.measured and component.name not in budget.measured
            why = f"{'new; ' if fresh else ''}{_files(image, component.name)}"
            rows.append(_row(f"component {component.name}", component.size, text, why))
    if not rows:
        raise UsageError("the budget has no limit", fix="write one: --budget FILE --update")
    return tuple(rows)


def _check_names(kind: str, limited: AbstractSet[str], known: AbstractSet[str]) -> None:
    for name in sorted(limited - known):
        near = difflib.get_close_matches(name, known, 1)
        what = f"the budget limits {kind} {name!r}, and the bundle has none of that name"
        raise UsageError(what, fix=f"{f'did you mean {near[0]!r}?' if near else 'take its line out,'} or --update")


def _limited(
    what: str, limit: Limit, size: int, compressed: int | None, layer: str, budget: Budget, image: Image
) -> Iterator[Row]:
    why = _grown(budget, image, layer)
    if limit.unpacked:
        yield _row(f"{what} unpacked", size, limit.unpacked, why)
    if limit.compressed:
        if compressed is None:
            raise UsageError(
                f"{what}: an unpacked bundle has no compressed size", fix="give the image layout or an archive of it"
            )
        yield _row(f"{what} compressed", compressed, limit.compressed, why)


def _row(what: str, size: int, text: str, why: str) -> Row:
    limit = amounts.parsed(text) or 0
    return Row(what, size, limit, why if size > limit else "")


def _grown(budget: Budget, image: Image, layer: str) -> str:
    """Components, of one layer or of all, that are larger than when the budget was updated."""
    if not budget.measured:
        return ""
    held = {file.component for file in image.files if layer in ("all components", file.layer)}
    growth = {
        item.name: item.size - budget.measured.get(item.name, 0) for item in image.components if item.name in held
    }
    most = sorted((name for name in growth if growth[name] > 0), key=lambda name: -growth[name])
    named = [f"{name} {signed(growth[name])}{'' if name in budget.measured else ' (new)'}" for name in most[:5]]
    return f"grew since the budget: {', '.join(named)}" if named else ""


def _files(image: Image, component: str) -> str:
    """Its largest files."""
    files = sorted((file for file in image.files if file.component == component), key=lambda file: -file.size)
    return f"largest: {', '.join(f'{file.path} {shown(file.size)}' for file in files[:3])}"


def updated(budget: Budget | None, image: Image, headroom: str) -> Budget:
    """Limits for the present sizes. headroom: '' for the budget's own. The limit of `*` stays."""
    before = budget or Budget(components={OTHER: _OTHER_LIMIT})
    wanted = headroom or before.headroom
    share = amounts.share(wanted)
    if share is None:
        raise UsageError(f"--headroom {wanted!r} is no share", fix="write it like 5%")

    def limit(size: int, compressed: int | None) -> Limit:
        return Limit(amounts.above(size, share), None if compressed is None else amounts.above(compressed, share))

    sizes = {item.name: item.size for item in sorted(image.components, key=lambda item: item.name)}
    other = {OTHER: before.components[OTHER]} if OTHER in before.components else {}
    return Budget(
        headroom=wanted,
        total=limit(image.size, image.compressed),
        layers={layer.name: limit(layer.size, layer.compressed) for layer in image.layers},
        components={name: amounts.above(size, share) for name, size in sizes.items()} | other,
        measured=sizes,
    )
