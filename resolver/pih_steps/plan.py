"""Step `plan`: lower the model again and write plan.json; it must be the plan that the lock was made with.

params: model {package (a tree), entry}, pack (the plugin.toml with the capability report), isa,
limits {context, batch, tokens, kv_dtype}, files (roles of lower/sources), expected_plan_sha256.
`pih lock` calls `lowered` with the same params, but for the digest that it is about to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pih_runtime.errors import BuildError
from pih_runtime.plan import Limits, to_json
from pih_steps.lower import Lowered, lower, read_report, sources
from pih_steps.lower.files import Paths
from pih_steps.lower.plugin import load_graph
from pih_steps.spec import Spec, param


def run(spec: Spec) -> None:
    """Write the plan; fail where it differs from the locked one."""
    text = to_json(lowered(spec.params, spec.artifacts, spec.trees).plan).encode()
    found, expected = sha256(text).hexdigest(), param(spec, "expected_plan_sha256")
    if found != expected:
        raise BuildError(
            f"the plan is {found}, the lock was made with {expected}",
            where="plan",
            fix="the lowering, the model plugin or the capability report has changed: pih lock",
        )
    spec.output.write_bytes(text)


def lowered(params: Mapping[str, Any], artifacts: Paths, trees: Paths) -> Lowered:
    """The model of these files, lowered for this pack and these limits."""
    model, limits = params["model"], params["limits"]
    return lower(
        sources.described(params["files"], artifacts, trees),
        load_graph(trees[model["package"]], model["entry"]),
        read_report(trees[params["pack"]], params["isa"]),
        Limits(tokens=limits["tokens"], seqs=limits["batch"], context=limits["context"]),
        limits["kv_dtype"],
    )
