"""A kernel pack's capability report: which op x weight format x layout it runs, and with which constants.

The `[report]` table of a plugin.toml, checked; filtered to one ISA, since a deployment has one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_runtime.ops import KERNEL_OPS
from pih_steps.lower import bounds

# The least exact type that a kernel's sums and intermediate values pass through, from the least to the most exact.
MODES = ("bf16", "f16", "f32", "f64", "exact")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry: op, the forms it takes, its source and template, constants in the template's order.

    fast: whether `template` is for the report's ISA. mode: one of MODES. multiple, reference_multiple: what constants
    must be multiples of for the template and for its scalar reference; equal: what figures must be for either; most:
    bounds of the template's figures.
    """

    op: str
    weight: str
    layout: str
    activation: str
    source: str
    template: str
    constants: tuple[str, ...]
    multiple: Mapping[str, int]
    precision: str
    mode: str
    fast: bool = True
    reference: str = ""
    reference_multiple: Mapping[str, int] = field(default_factory=dict)
    equal: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fused:
    """A kernel that does several calls in one, where they follow each other.

    Operands are counted through all the calls. operands: those that the kernel takes. same: pairs that must be one
    view. dropped: what the kernel does not write though the calls would. equal: figures that must have a value; most:
    bounds. A figure that several calls have must be the same in all, or is that of call i where it is named 'i.name'.
    """

    ops: tuple[str, ...]
    source: str
    template: str
    constants: tuple[str, ...]
    operands: tuple[int, ...]
    same: tuple[tuple[int, int], ...]
    dropped: tuple[int, ...]
    equal: Mapping[str, int]
    multiple: Mapping[str, int]
    precision: str
    mode: str
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Activation:
    """A private activation format: so many bytes for each group of values."""

    name: str
    group: int
    bytes_per_group: int


@dataclass(frozen=True, slots=True)
class Report:
    """kernels and fused ones in the pack's order of preference; layouts: how many weight rows each packs together."""

    where: str
    isa: str
    kernels: tuple[Kernel, ...]
    activations: Mapping[str, Activation]
    layouts: Mapping[str, int]
    fused: tuple[Fused, ...] = ()


def parse_report(data: Mapping[str, Any], isa: str, where: str) -> Report:
    """The report of `data`, a plugin.toml's `[report]` table, for one ISA."""
    try:
        entries = [_kernel(item, isa) for item in data["kernel"]]
        kernels = tuple(kernel for kernel in entries if kernel.fast or kernel.reference)
        activations = {item["name"]: Activation(**item) for item in data.get("activation", ())}
        layouts = {item["name"]: int(item["rows"]) for item in data["layout"]}
        fused = tuple(_fused(item) for item in data.get("fused", ()) if isa in item["isa"])
    except (KeyError, TypeError, ValueError) as problem:
        raise BuildError(
            f"not a capability report: {problem!r}", where=where, fix="see [report] in the plugin guide"
        ) from problem
    for op in [*(kernel.op for kernel in kernels), *(op for item in fused for op in item.ops)]:
        if op not in KERNEL_OPS:
            raise BuildError(f"the report names an unknown op {op!r}", where=where, fix=", ".join(KERNEL_OPS))
    for kernel in kernels:
        if kernel.activation not in ("f32", *activations) or kernel.layout not in ("", *layouts):
            raise BuildError(
                f"kernel {kernel.template} names a layout or activation that the report does not describe", where=where
            )
    modes = [(kernel.template, kernel.mode) for kernel in kernels] + [(item.template, item.mode) for item in fused]
    for template, mode in modes:
        if mode not in MODES:
            raise BuildError(f"kernel {template} has the unknown mode {mode!r}", where=where, fix=", ".join(MODES))
    if not any(kernel.fast for kernel in kernels):
        raise BuildError(f"no kernel for {isa}", where=where, fix="choose an ISA that the pack's report names")
    return Report(where, isa, kernels, activations, layouts, fused)


def _kernel(item: Mapping[str, Any], isa: str) -> Kernel:
    return Kernel(
        op=item["op"],
        weight=item["weight"],
        layout=item["layout"],
        activation=item["activation"],
        source=item["source"],
        template=item["template"],
        constants=tuple(item["constants"]),
        multiple=dict(item.get("multiple", {})),
        precision=item["precision"],
        mode=item["mode"],
        fast=bool(item["template"]) and isa in item["isa"],
        reference=item.get("reference", ""),
        reference_multiple=dict(item.get("reference_multiple", {})),
        equal=dict(item.get("equal", {})),
        most=bounds.of_constants(item["constants"], item.get("most", {})),
    )


def _fused(item: Mapping[str, Any]) -> Fused:
    return Fused(
        ops=tuple(item["ops"]),
        source=item["source"],
        template=item["template"],
        constants=tuple(item["constants"]),
        operands=tuple(item["operands"]),
        same=tuple((first, second) for first, second in item.get("same", ())),
        dropped=tuple(item.get("dropped", ())),
        equal=dict(item.get("equal", {})),
        multiple=dict(item.get("multiple", {})),
        precision=item["precision"],
        mode=item["mode"],
        most=bounds.of_constants(item["constants"], item.get("most", {})),
    )


def read_report(plugin: Path, isa: str) -> Report:
    """The report of the plugin in this folder."""
    manifest = plugin / "plugin.toml"
    try:
        data = tomllib.loads(manifest.read_text("utf-8"))
        return parse_report(data["report"], isa, str(data["id"]))
    except (OSError, ValueError) as problem:
        raise BuildError(f"cannot read: {problem}", where=str(manifest), fix="restore the plugin") from problem
    except KeyError as problem:
        raise BuildError(
            f"the plugin has no {problem}", where=str(manifest), fix="choose a plugin with kernels"
        ) from problem
