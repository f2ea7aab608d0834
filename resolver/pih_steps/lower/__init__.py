"""Lowering: a checkpoint's config and tensor table, through a model plugin's graph, to a plan for one kernel pack.

Used by `pih lock` (bindings and budget come from the plan) and by the `plan` step, which must find the same plan.
What is exported here is what model plugins, the steps and the resolver may use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from pih_runtime.errors import ResolutionError
from pih_runtime.plan import Cache, Limits, Plan, Weight, check, to_json
from pih_steps.lower.bind import Binding, bind
from pih_steps.lower.checkpoint import Checkpoint, Tensor
from pih_steps.lower.config import (
    Looked,
    attention_heads,
    check_context,
    check_full_attention,
    expect,
    inv_freq,
    real,
    rope_theta,
    whole,
)
from pih_steps.lower.formats import tensor_bytes
from pih_steps.lower.fuse import accumulate, merge_linears, merge_ropes
from pih_steps.lower.graph import Builder, Graph, Parameter
from pih_steps.lower.memory import plan_buffers
from pih_steps.lower.pick import Form, NoKernelError
from pih_steps.lower.report import Report, parse_report, read_report
from pih_steps.lower.shard import shard

__all__ = [
    "Binding",
    "Builder",
    "Checkpoint",
    "Graph",
    "GraphFunction",
    "Lowered",
    "NoKernelError",
    "Report",
    "Tensor",
    "attention_heads",
    "check_context",
    "check_full_attention",
    "expect",
    "inv_freq",
    "lower",
    "parse_report",
    "plan_sha256",
    "read_report",
    "real",
    "rope_theta",
    "whole",
]

GraphFunction = Callable[[Mapping[str, Any], Mapping[str, Tensor], Limits], Graph]

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Lowered:
    """The plan, and the kernels that it calls, by symbol. fallbacks: those that are scalar references, and why."""

    plan: Plan
    bindings: tuple[Binding, ...]
    fallbacks: tuple[str, ...]


def lower(
    checkpoint: Checkpoint,
    graph_function: GraphFunction,
    report: Report,
    limits: Limits,
    kv_dtype: str = "bf16",
    page_size: int = PAGE_SIZE,
    fallbacks: Collection[str] = (),
    spill: int = 0,
    ranks: int = 1,
) -> Lowered:
    """Lower a model for one deployment; the same inputs give the same plan, byte for byte.

    fallbacks: ops that may run through the pack's scalar reference where it has no fast kernel. spill: bytes of cache
    pages that the memory plugin keeps elsewhere than on the device. ranks: the plan is of each one of so many.
    """
    if kv_dtype not in ("bf16", "f32"):
        raise ResolutionError(f"kv_dtype {kv_dtype!r}", where="limits.kv_dtype", fix="one of bf16, f32")
    if min(limits.tokens, limits.seqs, limits.context, page_size) < 1 or limits.tokens < limits.seqs:
        raise ResolutionError(
            f"limits tokens {limits.tokens}, seqs {limits.seqs}, context {limits.context}",
            where="limits",
            fix="all at least 1, and tokens at least seqs: each sequence decodes one token a step",
        )
    config = Looked(checkpoint.config)
    graph = shard(graph_function(config, checkpoint.tensors, limits), ranks)
    config.check()
    graph = merge_ropes(accumulate(merge_linears(graph, report)))
    one = tuple(Cache(c.name, c.layers, c.kv_heads, c.head_dim, page_size, 1, kv_dtype) for c in graph.caches)
    pages = _pages(limits, page_size, spill, sum(cache.nbytes for cache in one))
    caches = tuple(replace(cache, pages=pages) for cache in one)
    bound = bind(graph, report, {cache.name: cache for cache in caches}, limits, fallbacks)
    buffers, calls, arena = plan_buffers(bound.calls, bound.values, limits)
    weights = tuple(_weight(name, graph.parameters[name], form) for name, form in bound.forms.items())
    plan = Plan(graph.model, limits, graph.vocab, arena, buffers, caches, weights, calls, ranks)
    check(plan)
    return Lowered(plan, bound.bindings, bound.fallbacks)


def plan_sha256(plan: Plan) -> str:
    """The plan's identity: sha256 of its JSON."""
    return sha256(to_json(plan).encode()).hexdigest()


def _pages(limits: Limits, page_size: int, spill: int, page_bytes: int) -> int:
    """Pages on the device: all that the limits ask for, without those that spill; a whole sequence's at least."""
    each = -(-limits.context // page_size)
    pages = limits.seqs * each - spill // max(page_bytes, 1)
    if pages < each:
        most = (limits.seqs - 1) * each * page_bytes
        raise ResolutionError(
            f"{spill} bytes of spill leave no room on the device for one sequence's {each} pages",
            where="limits.spill",
            fix=f"at most {most >> 20} MiB" if most >> 20 else "no spill",
        )
    return pages


def _weight(name: str, parameter: Parameter, form: Form) -> Weight:
    nbytes = tensor_bytes(form.format, parameter.shape, name)
    shape, sources, values = parameter.shape, parameter.sources, parameter.values
    return Weight(name, shape, form.format, form.layout, nbytes, sources, values, parameter.split)
