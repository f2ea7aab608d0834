"""Two sides compared. What differs is data; saying it is for `words` and `markdown`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pih.diff import facts
from pih.diff.difference import Change, Component, Difference, FileChange, ImageChange, Layer, Sizes
from pih.diff.facts import Artifact, Facts, File, Image, Plugin
from pih.spdx import NOASSERTION
from pih.structure import unstructure

T = TypeVar("T")
R = TypeVar("R", Component, FileChange)
_Sized = facts.Layer | facts.Component | facts.File


def compare(old: Facts, new: Facts) -> Difference:
    """All that differs of what both sides know."""
    image = _images(old.image, new.image) if old.image and new.image else None
    names = [_components(side, with_image=image is not None) for side in (old, new)]
    return Difference(
        old=old,
        new=new,
        settings=tuple(_values(old.settings, new.settings)),
        weights=tuple(_values(_weights(old), _weights(new))),
        plugins=tuple(_values(_versions(old.plugins), _versions(new.plugins))),
        artifacts=tuple(_artifacts(old.artifacts, new.artifacts)),
        permissions=tuple(_sets(_permissions(old.plugins), _permissions(new.plugins))),
        licences=tuple(change for change in _values(old.licences, new.licences) if change.name in names[0] & names[1]),
        new_components=tuple(sorted(names[1] - names[0])),
        new_licences=tuple(_new_licences(old, new, *names)),
        ops=tuple(change.name for change in _values(_kernels(old), _kernels(new))),
        modes=tuple(change for change in _values(_modes(old), _modes(new)) if change.old and change.new),
        fallbacks=tuple(_sets(old.fallbacks, new.fallbacks)),
        memory=tuple(Sizes(name, was, now) for name, was, now in _pairs(old.memory, new.memory) if was != now),
        plan=tuple(_values({"plan": old.plan}, {"plan": new.plan})),
        parts=tuple(change.name for change in _values(old.parts, new.parts)),
        image=image,
        unknown=tuple(_unknown(old, new, image)),
    )


def _pairs(old: Mapping[str, T], new: Mapping[str, T]) -> Iterable[tuple[str, T | None, T | None]]:
    """Every name of either side, in the order of the new one, with its two values."""
    for name in [*new, *(name for name in old if name not in new)]:
        yield name, old.get(name), new.get(name)


def _values(old: Mapping[str, str], new: Mapping[str, str]) -> Iterable[Change]:
    for name, before, after in _pairs(old, new):
        if before != after:
            yield Change(name, before or "", after or "")


def _sets(old: Iterable[str], new: Iterable[str]) -> Iterable[Change]:
    """What came and what went, each as a change of nothing else."""
    return _values(dict.fromkeys(old, "there"), dict.fromkeys(new, "there"))


def _weights(side: Facts) -> dict[str, str]:
    values = unstructure(side.weights)
    return {key: ", ".join(item) if isinstance(item, list) else item for key, item in values.items()}


def _versions(plugins: Iterable[Plugin]) -> dict[str, str]:
    return {item.id: f"{item.version} {item.source}".rstrip() for item in plugins}


def _artifacts(old: Iterable[Artifact], new: Iterable[Artifact]) -> Iterable[Change]:
    """By version; by digest too where other bytes have the same version."""
    before, after = ({item.name: item for item in side} for side in (old, new))
    for name, was, now in _pairs(before, after):
        if was is None or now is None or was.version != now.version:
            yield Change(name, was.version if was else "", now.version if now else "")
        elif was.sha256 != now.sha256:
            texts = [f"{item.version} (sha256:{item.sha256[:12]})" for item in (was, now)]
            yield Change(name, *texts)


def _permissions(plugins: Iterable[Plugin]) -> list[str]:
    return [f"{item.id}: {word}" for item in plugins for word in item.may]


def _kernels(side: Facts) -> dict[str, str]:
    """The kernels of each op, as one text to compare."""
    found: dict[str, str] = {}
    for item in side.kernels:
        found[item.op] = found.get(item.op, "") + f"{item}\n"
    return found


def _modes(side: Facts) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for item in side.kernels:
        found.setdefault(item.op, set()).add(item.mode)
    return {op: " and ".join(sorted(modes)) for op, modes in found.items()}


def _components(side: Facts, *, with_image: bool) -> set[str]:
    """Of the image where both sides are one; else what locks name that is part of an image as it is."""
    if with_image and side.image:
        return {item.name for item in side.image.components}
    shipped = {item.name for item in side.artifacts if item.part in ("base", "wheels")}
    return shipped | {item.id for item in side.plugins} | {"model", "weights"}


def _new_licences(old: Facts, new: Facts, before: set[str], after: set[str]) -> Iterable[Change]:
    held = {old.licences.get(name) for name in before} - {NOASSERTION}
    for name in sorted(after - before):
        licence = new.licences.get(name, NOASSERTION)
        if licence not in held:
            yield Change(name, "", licence)


def _images(old: Image, new: Image) -> ImageChange:
    return ImageChange(
        size=Sizes("unpacked", old.size, new.size),
        compressed=Sizes("compressed", old.compressed, new.compressed),
        layers=tuple(_layers(old, new)),
        files=_largest(_files(old, new)),
        components=_largest(_changed_components(old, new)),
    )


def _largest(rows: Iterable[R]) -> tuple[R, ...]:
    """By how much the size changed, either way; then in the order given."""
    return tuple(sorted(rows, key=lambda row: -abs(row.size.growth)))


def _sizes(name: str, was: _Sized | None, now: _Sized | None) -> Sizes:
    return Sizes(name, was.size if was else None, now.size if now else None)


def _layers(old: Image, new: Image) -> Iterable[Layer]:
    before, after = ({row.name: row for row in side.layers} for side in (old, new))
    changed = {row.layer for row in _files(old, new)}
    for name, was, now in _pairs(before, after):
        sizes = _sizes(name, was, now)
        compressed = Sizes(name, was.compressed if was else None, now.compressed if now else None)
        known = was and now and was.digest and now.digest
        if was is None or now is None or (was.digest != now.digest if known else name in changed):
            yield Layer(name, sizes, compressed)


def _files(old: Image, new: Image) -> Iterable[FileChange]:
    before, after = ({row.path: row for row in side.files} for side in (old, new))
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        row = now or was
        if row is not None and (was is None or now is None or was.content != now.content):
            yield FileChange(path, row.component, row.layer, _sizes(path, was, now))


def _changed_components(old: Image, new: Image) -> Iterable[Component]:
    """Those whose files differ, and those of another version."""
    contents = [_contents(side.files) for side in (old, new)]
    before, after = ({row.name: row for row in side.components} for side in (old, new))
    for name, was, now in _pairs(before, after):
        version = Change("version", was.version if was else "", now.version if now else "")
        if contents[0].get(name) != contents[1].get(name) or version.old != version.new:
            yield Component(name, version, _sizes(name, was, now))


def _contents(files: Iterable[File]) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for row in files:
        found.setdefault(row.component, set()).add((row.path, row.content))
    return found


def _unknown(old: Facts, new: Facts, image: ImageChange | None) -> Iterable[str]:
    if image is None:
        locks = " and ".join(side.where for side in (old, new) if side.image is None)
        yield f"sizes, layers and files, which are not known from a lock ({locks})"
    elif image.compressed.old is None or image.compressed.new is None:
        yield "compressed sizes, which are not known of an unpacked bundle"
