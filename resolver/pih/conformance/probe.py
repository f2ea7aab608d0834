"""The plugin's own process: makes every check that needs its code, and prints one line of JSON for each.

Needs the standard library, `pih_runtime`, the lowering and this package's own modules; what the plugin needs is its
interpreter's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pih.conformance import lifecycle, offspring, ops
from pih.conformance.cases import Case, cases
from pih.conformance.findings import BrokenError, SkippedError
from pih.conformance.subject import Subject
from pih_runtime.errors import described
from pih_runtime.plan import Cache, Limits, Plan, Weight

_DETAIL = 10_000  # letters of a plugin's own words, which may be any number
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# Of each kind, the module that tries what it must do beside starting and stopping.
_BEHAVIOUR = {
    "backend": "ops",
    "execution": "execution",
    "health": "health",
    "kernels": "ops",
    "memory": "memory",
    "model": "models",
    "platform": "platforms",
    "storage": "storage",
    "surface": "surface",
    "transport": "collectives",
}


def main(spec: Mapping[str, Any]) -> None:
    """Every check, in order; a line before and after each, and one at the end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a plugin writes is no answer, its native code's neither
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nor does it read what is its parent's
    sys.path[:0] = spec["path"]
    subject = _subject(spec)
    behaviour = [*importlib.import_module(f"pih.conformance.{_BEHAVIOUR[subject.kind]}").checks(subject)]
    if spec["lifecycle"]:
        whole = ("lifecycle: use leaves nothing behind", partial(lifecycle.used, behaviour[0][1]))
        behaviour = [*lifecycle.checks(subject), *behaviour, whole]
    for name, action in behaviour:
        print(json.dumps({"begin": name}), file=answers, flush=True)
        outcome, detail = _outcome(action)
        print(json.dumps({"check": name, "outcome": outcome, "detail": detail[:_DETAIL]}), file=answers, flush=True)
    print(json.dumps({"done": True}), file=answers, flush=True)


def _outcome(action: Callable[[], None]) -> tuple[str, str]:
    try:
        action()
    except BrokenError as broken:
        return FAILED, str(broken)
    except SkippedError as skipped:
        return SKIPPED, str(skipped)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - the plugin's own failure is the finding
        return FAILED, described(problem)
    return PASSED, ""


def _subject(spec: Mapping[str, Any]) -> Subject:
    first = next((case for case in cases(spec["report"], spec["isa"]) if isinstance(case, Case)), None)
    plan, stored = _first(first)
    return Subject(
        entry=spec["entry"],
        build=spec["build"],
        provides=tuple(spec["provides"]),
        requires=tuple(spec["requires"]),
        kind=spec["kind"],
        report=spec["report"],
        isa=spec["isa"],
        root=Path(spec["root"]),
        folder=Path(spec["path"][0]),
        host_bytes=spec["host_bytes"],
        plan=plan,
        stored=stored,
    )


def _first(case: Case | None) -> tuple[Plan, dict[str, bytes]]:
    if case is not None:
        return case.plan, ops.stored(case)
    cache = Cache("kv", 1, 1, 16, 16, 16, "f32")
    weights = (Weight("w0", (64,), "f32", "rows", 256),)
    return Plan("conformance", Limits(8, 4, 64), 32, 0, (), (cache,), weights, ()), {"w0": bytes(256)}


def _left(names: str) -> None:
    print(json.dumps({"left": names[:_DETAIL]}), flush=True)


if __name__ == "__main__":
    offspring.supervised(partial(main, json.loads(Path(sys.argv[1]).read_text())), _left)
