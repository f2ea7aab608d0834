"""What a plugin.toml and a catalog of them say, as frozen classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import attrs

from pih.origin import Origin, Refused
from pih.spdx import NOASSERTION
from pih.structure import RefusedError, show

Kind = Literal[
    "platform", "storage", "backend", "kernels", "memory", "transport", "model", "execution", "surface", "health"
]
Mode = Literal["bf16", "f16", "f32", "f64", "exact"]
_MOST_BYTES = 1 << 50


def _whole(low: int, high: int) -> Callable[[object, attrs.Attribute[int], int], None]:
    """Checks a whole number: what is not within, would upset the budget's sums."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if not low <= value <= high:
            raise RefusedError(attribute.name, f"{show(value)} is out of range", f"allowed: {low} to {high}")

    return check


def _each(low: int) -> Callable[[object, attrs.Attribute[dict[str, int]], dict[str, int]], None]:
    """Checks a table of whole numbers: none below `low`."""

    def check(_: object, attribute: attrs.Attribute[dict[str, int]], value: dict[str, int]) -> None:
        for name, number in value.items():
            if not low <= number < 1 << 32:
                what = f"{show(name)} = {show(number)} is out of range"
                raise RefusedError(attribute.name, what, f"allowed: {low} to {(1 << 32) - 1}")

    return check


@attrs.frozen
class Constraint:
    """Targets a plugin works on; what is empty means any.

    sm: of a GPU, like "sm_89". devices, device_memory ("16 GiB"), driver ("580.65.06"): the least that will do.
    """

    os: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    isa: tuple[str, ...] = ()
    sm: tuple[str, ...] = ()
    devices: int = attrs.field(default=0, validator=_whole(0, 1024))
    device_memory: str = ""
    driver: str = ""


@attrs.frozen
class RuntimePart:
    """What runs in the worker. wheels: names among the pins.

    libraries: shared ones that it opens itself, by their path in one of its wheels, of which nothing else is in the
    image but what is imported.
    host_bytes: memory it costs at ready; host_bytes_per_token: and for each token of the model's vocabulary.
    device_bytes: of each device's memory, beside what the plan takes.
    """

    package: str
    entry: str
    wheels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    host_bytes: int = attrs.field(default=0, validator=_whole(0, _MOST_BYTES))
    host_bytes_per_token: int = attrs.field(default=0, validator=_whole(0, 1 << 20))
    device_bytes: int = attrs.field(default=0, validator=_whole(0, _MOST_BYTES))


@attrs.frozen
class BuildPart:
    """What runs in the build."""

    package: str
    entry: str


@attrs.frozen
class Permissions:
    """What the plugin may reach in the worker. environment: variables of the host that are passed on, where set."""

    network: Literal["none", "listen"] = "none"
    devices: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


@attrs.frozen
class Kernel:
    """One op x weight format x layout that a pack runs; the kernel pack's plugin.toml explains each key.

    template '': there is a scalar reference alone. mode: the least exact type that sums pass through.
    """

    op: str
    weight: str
    layout: str
    activation: str
    isa: tuple[str, ...]
    source: str
    template: str
    constants: tuple[str, ...]
    precision: str
    mode: Mode
    reference: str = ""
    multiple: dict[str, int] = attrs.field(factory=dict, validator=_each(1))
    reference_multiple: dict[str, int] = attrs.field(factory=dict, validator=_each(1))
    equal: dict[str, int] = attrs.field(factory=dict, validator=_each(0))
    most: dict[str, int] = attrs.field(factory=dict, validator=_each(1))
    scratch: dict[str, int] = attrs.field(factory=dict, validator=_each(0))
    shared_scratch: tuple[str, ...] = ()


@attrs.frozen
class Fused:
    """A run of ops that a pack does in one kernel; `pih_steps.lower.report` says what each key means."""

    ops: tuple[str, ...]
    isa: tuple[str, ...]
    source: str
    template: str
    constants: tuple[str, ...]
    operands: tuple[int, ...]
    precision: str
    mode: Mode
    same: tuple[tuple[int, int], ...] = ()
    dropped: tuple[int, ...] = ()
    equal: dict[str, int] = attrs.field(factory=dict, validator=_each(0))
    multiple: dict[str, int] = attrs.field(factory=dict, validator=_each(1))
    most: dict[str, int] = attrs.field(factory=dict, validator=_each(1))
    shared_scratch: tuple[str, ...] = ()


@attrs.frozen
class Activation:
    """A private activation format: bytes of each group of values."""

    name: str
    group: int = attrs.field(validator=_whole(1, 1 << 16))
    bytes_per_group: int = attrs.field(validator=_whole(1, 1 << 20))


@attrs.frozen
class Layout:
    """A weight layout: rows that are stored side by side."""

    name: str
    rows: int = attrs.field(validator=_whole(1, 1 << 16))


@attrs.frozen
class Report:
    """A capability report: a kernel pack's ops, and the pinned wheel that compiles them.

    spill: for a memory plugin, where it keeps pages that are not on a device.
    """

    compiler: Literal["ziglang", "nvidia-cuda-nvrtc"] = "ziglang"
    kernel: tuple[Kernel, ...] = ()
    fused: tuple[Fused, ...] = ()
    activation: tuple[Activation, ...] = ()
    layout: tuple[Layout, ...] = ()
    spill: tuple[Literal["host"], ...] = ()


@attrs.frozen
class Tested:
    """A row of a plugin's version matrix: this version of it works with these versions of PIH and this ABI."""

    version: str
    pih: str
    abi: int = attrs.field(validator=_whole(1, 9999))


@attrs.frozen
class Manifest:
    """One plugin.toml. tested: its version matrix, with a row for each release; needed outside the source tree.

    requires: capabilities that must be served. optional: capabilities that must be of these versions where the
    deployment has them anyway; the plugin starts after their providers. conflicts: plugins, by id, that it cannot
    stand beside. licence: an SPDX expression. yanked: why no new lock may choose this version.
    """

    id: str
    version: str
    kind: Kind
    abi: int = attrs.field(validator=_whole(1, 9999))
    summary: str
    provides: dict[str, str]
    requires: dict[str, str] = attrs.field(factory=dict)
    optional: dict[str, str] = attrs.field(factory=dict)
    conflicts: dict[str, str] = attrs.field(factory=dict)
    licence: str = NOASSERTION
    yanked: str = ""
    target: Constraint = Constraint()
    runtime: RuntimePart | None = None
    build: BuildPart | None = None
    permissions: Permissions = Permissions()
    report: Report = Report()
    tested: tuple[Tested, ...] = ()


@attrs.frozen
class Catalog:
    """root: the source tree.

    origins: of the plugins that are not the source tree's own, by id and version.
    """

    root: Path
    plugins: tuple[Manifest, ...]
    origins: dict[tuple[str, str], Origin] = attrs.field(factory=dict)
    refused: tuple[Refused, ...] = ()

    def origin(self, plugin: Manifest) -> Origin | None:
        """Where a plugin comes from; None for the source tree's own."""
        return self.origins.get((plugin.id, plugin.version))

    def find(self, identity: str) -> Manifest | None:
        """The plugin with this id."""
        return next((plugin for plugin in self.plugins if plugin.id == identity), None)
