"""Step `plan`: lower the model again and write plan.json; it must be the plan that the lock was made with.

params: checkpoint (see lower/sources), model (tree of the model plugin), kernels (tree of the plugin with the
capability report), isa, limits {tokens, seqs, context}, kv_dtype, page_size, fallback_ops (may run through the
pack's scalar reference), spill (bytes of cache pages kept elsewhere), ranks (where there are several),
expected_plan_sha256.
"""

from __future__ import annotations

from hashlib import sha256

from pih_runtime.errors import BuildError
from pih_runtime.plan import Limits, to_json
from pih_steps.lower import lower, read_report, sources
from pih_steps.lower.plugin import load_graph
from pih_steps.spec import Spec, param, tree


def run(spec: Spec) -> None:
    """Write the plan; fail where it differs from the locked one."""
    report = read_report(tree(spec, param(spec, "kernels")), param(spec, "isa"))
    checkpoint = sources.described(param(spec, "checkpoint"), spec.artifacts, spec.trees)
    lowered = lower(
        checkpoint,
        load_graph(tree(spec, param(spec, "model"))),
        report,
        Limits(**param(spec, "limits")),
        param(spec, "kv_dtype"),
        param(spec, "page_size"),
        param(spec, "fallback_ops"),
        param(spec, "spill"),
        spec.params.get("ranks", 1),
    )
    text = to_json(lowered.plan).encode()
    found, expected = sha256(text).hexdigest(), param(spec, "expected_plan_sha256")
    if found != expected:
        raise BuildError(
            f"the plan is {found}, the lock was made with {expected}",
            where="plan",
            fix="the lowering, the model plugin or the capability report has changed: pih lock",
        )
    spec.output.write_bytes(text)
