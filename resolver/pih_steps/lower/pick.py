"""Which kernel of a pack can run a call, and, where none can, why each of them cannot.

A fast kernel, or the scalar reference beside it where the profile allows that for the op. Never one whose sums pass
through a type less exact than the model wants.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pih_runtime.errors import ResolutionError
from pih_runtime.plan import Cache, Limits
from pih_steps.lower import bounds
from pih_steps.lower.graph import Graph, Node
from pih_steps.lower.report import MODES, Kernel, Report

FAST, REFERENCE = "fast", "reference"
_PAIRS = {"half": 0, "adjacent": 1}
_KV = {"f32": 0, "bf16": 1}
# figures that a profile's limits decide, and what they are multiples of
_LIMITED = {"positions": ("limits.context", 256), "seqs": ("limits.batch", 1)}


class NoKernelError(ResolutionError):
    """No kernel of the pack runs a call. wanted: the call in words; causes: why each kernel is out, in words."""

    def __init__(self, wanted: str, causes: Sequence[str], *, where: str, fix: str) -> None:
        more = "".join(f",\n  and {cause}" for cause in causes)
        super().__init__(f"the kernel pack has no {wanted}{more}", where=where, fix=fix)
        self.wanted = wanted
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Form:
    """How a parameter is packed."""

    format: str
    layout: str


@dataclass(frozen=True, slots=True)
class Pick:
    """A kernel that runs a call. path: `fast` or `reference`; why: for a reference, what the fast one lacks."""

    kernel: Kernel
    path: str
    why: str = ""

    @property
    def template(self) -> str:
        """The C++ template that is instantiated."""
        return self.kernel.template if self.path == FAST else self.kernel.reference


@dataclass(frozen=True, slots=True)
class Pack:
    """What a choice depends on beside the call: the graph, the pack's report, caches, limits, ops that may be slow."""

    graph: Graph
    report: Report
    caches: Mapping[str, Cache]
    limits: Limits
    fallbacks: Collection[str] = ()

    @property
    def where(self) -> str:
        """The pack and its instruction set, for messages."""
        return f"{self.report.where} ({self.report.isa})"


def picks(node: Node, form: Form, pack: Pack) -> list[Pick]:
    """Kernels that can run this call with its weight in this form, most preferred first: fast ones before slow."""
    kernels = [k for k in pack.report.kernels if k.op == node.op and (k.weight, k.layout) == (form.format, form.layout)]
    lacks = [(kernel, _lack(node, kernel, pack)) for kernel in kernels]
    found = [Pick(kernel, FAST) for kernel, lack in lacks if not lack]
    if node.op in pack.fallbacks:
        slow = [(kernel, lack) for kernel, lack in lacks if lack and not _reference_lack(node, kernel, pack)]
        found += [Pick(kernel, REFERENCE, lack) for kernel, lack in slow]
    return found


def none_found(node: Node, wanted: str, kernels: Sequence[Kernel], pack: Pack) -> NoKernelError:
    """The error of a call that no kernel runs. kernels: those that come near."""
    causes, slow = [], False
    for kernel in kernels:
        lack = _lack(node, kernel, pack)
        name = kernel.template or kernel.reference
        causes.append(f"{name} is out: {lack or 'it does not take the form that the other calls need'}")
        slow = slow or bool(lack and not _reference_lack(node, kernel, pack))
    cures, has = ["choose another kernel pack or ISA"], figures(node, pack).get("kv")
    if slow and node.op not in pack.fallbacks:
        cures.insert(
            0, f'allow the scalar reference, which is slower: kernels.fallback = "allow", fallback_ops = ["{node.op}"]'
        )
    cures[:0] = _within(figures(node, pack), kernels)
    kept = {kernel.equal["kv"] for kernel in kernels if kernel.equal.get("kv", has) != has}
    cures[:0] = [f'limits.kv_dtype = "{_kv_dtype(value)}"' for value in sorted(kept)]
    formats = sorted({k.weight for k in pack.report.kernels if k.op == node.op and k.weight})
    if formats and not kernels:
        cures.append(f"a checkpoint in one of {', '.join(formats)}")
    return NoKernelError(wanted, causes, where=pack.where, fix=", or ".join(cures))


def constants(node: Node, kernel: Kernel, pack: Pack) -> dict[str, int]:
    """The kernel's compile-time constants for this call, in the template's order."""
    found = figures(node, pack)
    missing = [name for name in kernel.constants if name not in found]
    if missing:
        raise ResolutionError(
            f"kernel {kernel.template} asks for the constant {missing[0]!r}, which {node.op} does not have",
            where=kernel.source,
            fix=f"it has {', '.join(sorted(found))}",
        )
    return {name: found[name] for name in kernel.constants}


def figures(node: Node, pack: Pack) -> dict[str, int]:
    """Every constant that follows from a call; the kernel packs' plugin.toml files say what each one means."""
    found: dict[str, int] = {}
    view = next(operand for operand in node.operands if operand.buffer)
    found["columns"] = view.columns
    attrs: Mapping[str, Any] = node.attrs
    for operand in node.operands:
        if operand.weight:
            shape = pack.graph.parameters[operand.weight].shape
            if len(shape) == 2:
                found["n"], found["k"] = shape
            elif node.op == "rms_norm":
                found["head_dim"] = shape[0]
            found["groups"] = view.columns // shape[-1]
        if operand.cache:
            cache = pack.caches[operand.cache]
            found |= {"kv_heads": cache.kv_heads, "page_size": cache.page_size, "kv": _KV[cache.dtype]}
            found["heads"] = view.columns // cache.head_dim
            found |= {"positions": -(-pack.limits.context // 256) * 256, "seqs": pack.limits.seqs}
    if node.op == "sample":
        found["v"] = view.columns
    if "pairs" in attrs:
        found["pairs"] = _PAIRS[attrs["pairs"]]
    for name in ("head_dim", "accumulate"):
        if name in attrs:
            found[name] = int(attrs[name])
    for name in ("eps", "scale"):
        if name in attrs:
            found[f"{name}_bits"] = struct.unpack("<I", struct.pack("<f", attrs[name]))[0]
    return found


def _lack(node: Node, kernel: Kernel, pack: Pack) -> str:
    """What keeps the fast kernel from running this call, or ''."""
    if not kernel.template:
        return "the pack has its scalar reference alone"
    if not kernel.fast:
        return f"it is not made for {pack.report.isa}"
    return _unmet(node, kernel, kernel.multiple, kernel.most, pack)


def _reference_lack(node: Node, kernel: Kernel, pack: Pack) -> str:
    """What keeps its scalar reference from running this call, or ''."""
    if not kernel.reference:
        return "it has no scalar reference"
    return _unmet(node, kernel, kernel.reference_multiple, {}, pack)


def _unmet(node: Node, kernel: Kernel, multiple: Mapping[str, int], most: Mapping[str, int], pack: Pack) -> str:
    """What of the call the kernel does not take: figures, or how exact its sums must be."""
    lack = misfit(figures(node, pack), kernel, multiple, most, pack.report.layouts)
    if not lack and MODES.index(kernel.mode) < MODES.index(needed(node, pack)):
        return f"its sums pass through {kernel.mode}, and {pack.graph.model} needs {needed(node, pack)}"
    return lack


def misfit(
    found: Mapping[str, int],
    kernel: Kernel,
    multiple: Mapping[str, int],
    most: Mapping[str, int],
    layouts: Mapping[str, int],
) -> str:
    """Figures that are not what is needed, no multiples of it or past a bound, and tiles that are not whole; or ''."""
    for name, value in sorted(kernel.equal.items()):
        if found[name] != value and name == "kv":
            return f"it keeps keys and values as {_kv_dtype(value)}, and limits.kv_dtype is {_kv_dtype(found[name])}"
        if found[name] != value:
            return f"it needs {name} to be {value}, and {name} is {found[name]}"
    for name, number in sorted(multiple.items()):
        if found[name] % number:
            return f"it needs {name} to be a multiple of {number}, and {name} is {found[name]}"
    for term, limit, value in bounds.past(found, most):
        return f"it needs {term} to be at most {limit}, and {term if term in found else 'that'} is {value}"
    rows = layouts.get(kernel.layout, 1)
    if found.get("n", 0) % rows:
        return f"its layout {kernel.layout} holds {rows} rows together, and the weight has {found['n']}"
    return ""


def _within(found: Mapping[str, int], kernels: Sequence[Kernel]) -> list[str]:
    """What would keep to the bounds that a call is past: another model, else either of two smaller limits."""
    cures = []
    for items in (bounds.past(found, kernel.most) for kernel in kernels):
        of_model = [item for item in items if not _LIMITED.keys() & set(bounds.names(item.term))]
        if of_model:
            cures.append("a model with " + " and ".join(f"{item.term} of at most {item.most}" for item in of_model))
            continue
        for name, (limit, grain) in _LIMITED.items():
            most = min((bounds.largest(item, name, found) // grain * grain for item in items), default=0)
            if most:
                cures.append(f"{limit} = {most}")
    return list(dict.fromkeys(cures))


def _kv_dtype(value: int) -> str:
    """A cache's type as profiles say it, by what the kernels know it by."""
    return next(name for name, number in _KV.items() if number == value)


def needed(node: Node, pack: Pack) -> str:
    """The least exact type that the model lets the call's sums pass through."""
    return pack.graph.modes.get(node.op, "f32")
