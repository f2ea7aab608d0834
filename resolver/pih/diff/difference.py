"""What differs between two sides, as data."""

from __future__ import annotations

import attrs

from pih.diff.facts import Facts


@attrs.frozen
class Change:
    """A value that changed. old: '' where it is new; new: '' where it is gone."""

    name: str
    old: str
    new: str


@attrs.frozen
class Sizes:
    """Bytes before and after; None where the thing was not there, or its size is not known."""

    name: str
    old: int | None
    new: int | None

    @property
    def growth(self) -> int:
        """Bytes more; what is not there has none. Of what is there and not known it says nothing."""
        return (self.new or 0) - (self.old or 0)


@attrs.frozen
class Component:
    """A component of the image with other files. version: '' on the side that has not got it."""

    name: str
    version: Change
    size: Sizes


@attrs.frozen
class Layer:
    """A layer with another digest or other sizes."""

    name: str
    size: Sizes
    compressed: Sizes


@attrs.frozen
class FileChange:
    """A file that came, went or has other bytes."""

    path: str
    component: str
    layer: str
    size: Sizes


@attrs.frozen
class ImageChange:
    """What differs between two images. files, components and layers: those that differ, the largest change first."""

    size: Sizes
    compressed: Sizes
    layers: tuple[Layer, ...]
    components: tuple[Component, ...]
    files: tuple[FileChange, ...]


@attrs.frozen
class Difference:
    """Two sides and all that differs.

    settings: of target, limits and service, by their key in the profile. ops: names of those with other kernels.
    modes: the least exact type that an op's sums pass through. memory: of the budget. permissions: one for each thing
    that a plugin may reach, as a new or a gone one. licences: of components that both sides have. new_licences: of new
    components, where none of the old ones is under it. parts: of the locks, that differ in anything. unknown:
    what could not be compared, and why.
    """

    old: Facts
    new: Facts
    settings: tuple[Change, ...]
    weights: tuple[Change, ...]
    plugins: tuple[Change, ...]
    artifacts: tuple[Change, ...]
    permissions: tuple[Change, ...]
    licences: tuple[Change, ...]
    new_components: tuple[str, ...]
    new_licences: tuple[Change, ...]
    ops: tuple[str, ...]
    modes: tuple[Change, ...]
    fallbacks: tuple[Change, ...]
    memory: tuple[Sizes, ...]
    plan: tuple[Change, ...]
    parts: tuple[str, ...]
    image: ImageChange | None
    unknown: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs that both sides know."""
        image = self.image
        return not self.parts and (image is None or not (image.layers or image.files))
