"""Binding a graph to a kernel pack: a layout for each weight, a kernel and its constants for each call.

Nothing is picked that the report does not name; a call without a kernel is an error, not a slower path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from struct import pack, unpack

from pih_runtime.errors import ResolutionError
from pih_runtime.plan import Cache, Call, Operand
from pih_steps.lower.fuse import output
from pih_steps.lower.graph import Graph, Node, Parameter, Value
from pih_steps.lower.report import Kernel, Report

_PAIRS = {"half": 0, "adjacent": 1}
_KV = {"f32": 0, "bf16": 1}


@dataclass(frozen=True, slots=True)
class Binding:
    """One kernel of the pack, with its compile-time constants; serves every call with its symbol."""

    op: str
    weight: str
    layout: str
    activation: str
    template: str
    source: str
    constants: Mapping[str, int]
    symbol: str
    precision: str


@dataclass(frozen=True, slots=True)
class Form:
    """How a parameter is packed."""

    format: str
    layout: str


@dataclass(frozen=True, slots=True)
class Bound:
    """Calls on values (private activations among them), the parameters' forms, and the bindings by symbol."""

    calls: tuple[Call, ...]
    values: Mapping[str, Value]
    forms: Mapping[str, Form]
    bindings: tuple[Binding, ...]


def bind(graph: Graph, report: Report, caches: Mapping[str, Cache]) -> Bound:
    """Choose kernels for the whole graph; raises ResolutionError naming op and format where the pack has none."""
    values = dict(graph.values)
    forms = _forms(graph, report, caches)
    calls: list[Call] = []
    bindings: dict[str, Binding] = {}
    quantized: dict[tuple[str, Operand], Operand] = {}

    def call(node: Node, kernel: Kernel) -> None:
        constants = _constants(node, kernel, graph.parameters, caches)
        symbol = "_".join([kernel.template, *(f"{name}{value}" for name, value in constants.items())])
        bindings[symbol] = Binding(
            op=node.op,
            weight=kernel.weight,
            layout=kernel.layout,
            activation=kernel.activation,
            template=kernel.template,
            source=kernel.source,
            constants=constants,
            symbol=symbol,
            precision=kernel.precision,
        )
        calls.append(Call(node.op, symbol, node.operands, dict(node.attrs)))

    for node in graph.nodes:
        kernel = _kernel(node, graph, report, forms, caches)
        if kernel.op == "linear" and kernel.activation != "f32":
            x, form = node.operands[0], kernel.activation
            if (form, x) not in quantized:
                step = _quantize(x, form, values, report)
                call(step, _quantize_kernel(step, form, report, graph, caches))
                quantized[form, x] = step.operands[1]
            node = replace(node, operands=(quantized[form, x], *node.operands[1:]))  # noqa: PLW2901 - the same call
        call(node, kernel)
        written = output(node)
        if written is not None:
            quantized = {key: y for key, y in quantized.items() if key[1].buffer != written.buffer}
    return Bound(tuple(calls), values, forms, tuple(bindings[symbol] for symbol in sorted(bindings)))


def _forms(graph: Graph, report: Report, caches: Mapping[str, Cache]) -> dict[str, Form]:
    """For each parameter the pack's most preferred form that all its calls can read."""
    uses: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for operand in node.operands:
            if operand.weight:
                uses.setdefault(operand.weight, []).append(node)
    return {name: _form(name, graph, nodes, report, caches) for name, nodes in uses.items()}


def _form(name: str, graph: Graph, nodes: Sequence[Node], report: Report, caches: Mapping[str, Cache]) -> Form:
    parameter = graph.parameters[name]
    formats = [parameter.format]
    if len(parameter.shape) == 1 and parameter.format in ("bf16", "f16"):
        formats.append("f32")  # exact, and a vector costs nothing
    ops = {node.op for node in nodes}
    forms = [Form(k.weight, k.layout) for f in formats for k in report.kernels if k.op in ops and k.weight == f]
    for form in forms:
        if all(_candidates(node, graph, report, form, caches) for node in nodes):
            return form
    raise ResolutionError(
        f"the kernel pack has no {' + '.join(sorted(ops))} for {parameter.format} weights of the shape "
        f"{list(parameter.shape)}, as {name} is",
        where=f"{report.where} ({report.isa})",
        fix="choose another kernel pack or ISA, or a checkpoint in one of "
        + ", ".join(sorted({k.weight for k in report.kernels if k.op in ops})),
    )


def _kernel(node: Node, graph: Graph, report: Report, forms: Mapping[str, Form], caches: Mapping[str, Cache]) -> Kernel:
    weight = next((operand.weight for operand in node.operands if operand.weight), "")
    found = _candidates(node, graph, report, forms[weight] if weight else Form("", ""), caches)
    if not found:
        raise ResolutionError(
            f"the kernel pack has no {node.op} with {_listed(_figures(node, graph.parameters, caches))}",
            where=f"{report.where} ({report.isa})",
            fix="choose another kernel pack or ISA",
        )
    return found[0]


def _candidates(node: Node, graph: Graph, report: Report, form: Form, caches: Mapping[str, Cache]) -> list[Kernel]:
    """Kernels that can run this call with its weight in this form, most preferred first."""
    return [
        kernel
        for kernel in report.kernels
        if kernel.op == node.op
        and (kernel.weight, kernel.layout) == (form.format, form.layout)
        and _fits(node, kernel, graph, report, caches)
    ]


def _fits(node: Node, kernel: Kernel, graph: Graph, report: Report, caches: Mapping[str, Cache]) -> bool:
    """Whether the call's figures are multiples of what the kernel needs, and its weight's rows whole tiles."""
    figures = _figures(node, graph.parameters, caches)
    rows = report.layouts.get(kernel.layout, 1)
    return (
        all(figures[name] % number == 0 for name, number in kernel.multiple.items()) and figures.get("n", 0) % rows == 0
    )


def _listed(figures: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(figures.items()))


def _quantize(x: Operand, form: str, values: dict[str, Value], report: Report) -> Node:
    """The call that brings x into a private activation format; enters the value it makes."""
    activation = report.activations[form]
    if x.columns % activation.group:
        raise ResolutionError(
            f"{x.columns} columns are no whole number of groups of {activation.group}",
            where=f"{report.where}: activation {form}",
        )
    nbytes = x.columns // activation.group * activation.bytes_per_group
    name = f"{x.buffer}.{form}" if not x.column else f"{x.buffer}.{x.column}.{form}"
    values[name] = Value(name, values[x.buffer].rows, nbytes, "u8")
    return Node("quantize", (x, Operand(buffer=name, columns=nbytes)), {"format": form})


def _quantize_kernel(node: Node, form: str, report: Report, graph: Graph, caches: Mapping[str, Cache]) -> Kernel:
    found = [k for k in _candidates(node, graph, report, Form("", ""), caches) if k.activation == form]
    if not found:
        raise ResolutionError(f"the kernel pack has no quantize to {form}", where=f"{report.where} ({report.isa})")
    return found[0]


def _constants(
    node: Node, kernel: Kernel, parameters: Mapping[str, Parameter], caches: Mapping[str, Cache]
) -> dict[str, int]:
    figures = _figures(node, parameters, caches)
    missing = [name for name in kernel.constants if name not in figures]
    if missing:
        raise ResolutionError(
            f"kernel {kernel.template} asks for the constant {missing[0]!r}, which {node.op} does not have",
            where=kernel.source,
            fix=f"it has {', '.join(sorted(figures))}",
        )
    return {name: figures[name] for name in kernel.constants}


def _figures(node: Node, parameters: Mapping[str, Parameter], caches: Mapping[str, Cache]) -> dict[str, int]:
    """Every constant that follows from a call; plugins/kernels/cpu/plugin.toml says what each one means."""
    figures: dict[str, int] = {}
    view = next(operand for operand in node.operands if operand.buffer)
    figures["columns"] = view.columns
    attrs = node.attrs
    for operand in node.operands:
        if operand.weight:
            shape = parameters[operand.weight].shape
            if len(shape) == 2:
                figures["n"], figures["k"] = shape
            figures["groups"] = view.columns // shape[-1]
        if operand.cache:
            cache = caches[operand.cache]
            figures |= {"kv_heads": cache.kv_heads, "page_size": cache.page_size, "kv": _KV[cache.dtype]}
            figures["heads"] = view.columns // cache.head_dim
    if node.op == "sample":
        figures["v"] = view.columns
    if "pairs" in attrs:
        figures["pairs"] = _PAIRS[attrs["pairs"]]
    for name in ("head_dim", "accumulate"):
        if name in attrs:
            figures[name] = int(attrs[name])
    for name in ("eps", "scale"):
        if name in attrs:
            figures[f"{name}_bits"] = unpack("<I", pack("<f", attrs[name]))[0]
    return figures
