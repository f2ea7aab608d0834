"""What a capability report's names must go together with: ops, the figures of their calls, layouts, activations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from pih.catalog.data import Fused, Kernel, Report
from pih.structure import RefusedError, choice_problem, show
from pih_runtime.ops import KERNEL_OPS, OPS

_MATRIX = {"columns", "n", "k", "groups"}
_CACHE = {"columns", "head_dim", "kv_heads", "page_size", "kv", "heads", "positions", "seqs"}
# What `pih_steps.lower.pick` makes constants of, for each op, and the formats that `pih_steps.lower.formats` knows:
# copies, which a test compares, as importing the lowering takes longer than reading every plugin.toml.
FIGURES = {
    "embed": frozenset(_MATRIX),
    "rms_norm": frozenset({"columns", "head_dim", "groups", "eps_bits"}),
    "quantize": frozenset({"columns"}),
    "linear": frozenset({*_MATRIX, "accumulate"}),
    "rope_table": frozenset({"columns", "groups"}),
    "rope": frozenset({"columns", "head_dim", "pairs"}),
    "kv_write": frozenset(_CACHE),
    "attention": frozenset({*_CACHE, "scale_bits"}),
    "silu_mul": frozenset({"columns"}),
    "add": frozenset({"columns"}),
    "gather": frozenset({"columns"}),
    "sample": frozenset({"columns", "v"}),
}
FORMATS = ("f32", "f16", "bf16", "q4_1", "q8_0", "int8")
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_SOURCE = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"  # below the sources, whatever it says


def check(report: Report) -> None:
    """Raise RefusedError naming the entry where one does not; '|' between the key's parts."""
    layouts = _distinct("layout", [layout.name for layout in report.layout])
    activations = _distinct("activation", [activation.name for activation in report.activation])
    forms = [(kernel.op, kernel.weight, kernel.layout, kernel.activation) for kernel in report.kernel]
    for symbols in ([kernel.template for kernel in report.kernel], [kernel.reference for kernel in report.kernel]):
        _distinct("kernel", [" ".join((*form, name)) for form, name in zip(forms, symbols, strict=True) if name])
    _distinct("fused", [" ".join(("+".join(fused.ops), fused.template)) for fused in report.fused])
    for index, kernel in enumerate(report.kernel):
        _kernel(f"report|kernel|{index}", kernel, layouts, activations)
    for index, fused in enumerate(report.fused):
        _fused(f"report|fused|{index}", fused)


def _kernel(at: str, kernel: Kernel, layouts: Collection[str], activations: Collection[str]) -> None:
    _choice(f"{at}|op", kernel.op, KERNEL_OPS)
    _form(f"{at}|source", kernel.source, _SOURCE, "attention.h")
    figures = FIGURES[kernel.op]
    weighted = "groups" in figures
    _choice(f"{at}|weight", kernel.weight, FORMATS if weighted else ("",))
    _choice(f"{at}|layout", kernel.layout, layouts if weighted else ("",))
    _choice(f"{at}|activation", kernel.activation, ("f32", *activations))
    for key, name in (("template", kernel.template), ("reference", kernel.reference)):
        _form(f"{at}|{key}", name, f"({_NAME})?", "rms_norm")
    for key, names in (
        ("constants", kernel.constants),
        ("multiple", kernel.multiple),
        ("reference_multiple", kernel.reference_multiple),
        ("equal", kernel.equal),
    ):
        _choices(f"{at}|{key}", names, sorted(figures))
    _choices(f"{at}|most", _terms(kernel.most), sorted(figures))
    for key, names in (("scratch", kernel.scratch), ("shared_scratch", kernel.shared_scratch)):
        _choices(f"{at}|{key}", names, kernel.constants)


def _fused(at: str, fused: Fused) -> None:
    if len(fused.ops) < 2:
        raise RefusedError(f"{at}|ops", "fewer than two ops", "name the ops that the kernel does in one")
    for op in fused.ops:
        _choice(f"{at}|ops", op, KERNEL_OPS)
    _form(f"{at}|source", fused.source, _SOURCE, "rms_norm.cuh")
    _form(f"{at}|template", fused.template, _NAME, "rms_norm_bf16")
    figures = list(dict.fromkeys(_figures(fused.ops)))
    for key, names in (("constants", fused.constants), ("equal", fused.equal), ("multiple", fused.multiple)):
        _choices(f"{at}|{key}", names, figures)
    _choices(f"{at}|most", _terms(fused.most), figures)
    plain = [name.rpartition(".")[2] for name in fused.constants]
    if len(set(plain)) < len(plain):
        raise RefusedError(f"{at}|constants", "two of one name", "name each figure once")
    _choices(f"{at}|shared_scratch", fused.shared_scratch, plain)
    most = sum(len(OPS[op].inputs) + len(OPS[op].outputs) for op in fused.ops)
    if bad := [pair for pair in fused.same if len(pair) != 2]:
        raise RefusedError(f"{at}|same", f"{show(bad[0])} is no pair", "write it like [0, 2]")
    for key, indices in (
        ("operands", fused.operands),
        ("dropped", fused.dropped),
        ("same", tuple(index for pair in fused.same for index in pair)),
    ):
        if outside := [index for index in indices if not 0 <= index < most]:
            what = f"{show(outside[0])} is no operand of {'+'.join(fused.ops)}"
            raise RefusedError(f"{at}|{key}", what, f"allowed: 0 to {most - 1}")


def _terms(most: Iterable[str]) -> Iterator[str]:
    """The figures in products and quotients, as `pih_steps.lower.bounds` reads them."""
    return (name for term in most for name in re.split(r" [*/] ", term))


def _figures(ops: Iterable[str]) -> Iterator[str]:
    for index, op in enumerate(ops):
        for name in sorted(FIGURES[op]):
            yield from (name, f"{index}.{name}")


def _distinct(table: str, names: list[str]) -> list[str]:
    for name, count in Counter(names).items():
        if count > 1:
            raise RefusedError(f"report|{table}", f"{show(name)} stands there {count} times", "describe it once")
    return names


def _choices(key: str, names: Iterable[str], allowed: Collection[str]) -> None:
    for name in names:
        _choice(key, name, allowed)


def _choice(key: str, name: str, allowed: Collection[str]) -> None:
    if name not in allowed:
        if not allowed:
            raise RefusedError(key, f"{show(name)} is not allowed", "the report describes none: remove it")
        raise RefusedError(key, *choice_problem(name, allowed))


def _form(key: str, value: str, pattern: str, example: str) -> None:
    if not re.fullmatch(pattern, value):
        raise RefusedError(key, f"{show(value)} is not allowed", f'write it like "{example}"')
