"""The plugin's own process: starts and stops it, runs cases on it, and prints one line of JSON for each check.

Needs the standard library, `pih_runtime` and this package's own modules; what the plugin needs is its interpreter's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pih.conformance import bundles, collectives, ops, standins
from pih.conformance.cases import Case, cases
from pih.conformance.drafts import LIMITS
from pih_runtime import contracts
from pih_runtime import plan as plans
from pih_runtime.errors import PihError, described
from pih_runtime.plan import Cache, Plan, Weight

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_PROTOCOLS: dict[str, type] = {
    "platform.host": contracts.Host,
    "storage.weights": contracts.Weights,
    "backend.device": contracts.Backend,
    "memory.pages": contracts.Pool,
    "model.text": contracts.Text,
    "execution.engine": contracts.Engine,
    "surface.http": contracts.Http,
}
_ROUNDS = 3
_CACHE_BYTES = 64 << 20  # large, and never touched: what is not given back shows


class BrokenError(Exception):
    """The plugin does not keep its contract."""


class SkippedError(Exception):
    """What is asked says nothing about the plugin here."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tried. report: of the pack it runs, its own or that of PIH. root: a bundle's /pih to write."""

    entry: str
    provides: tuple[str, ...]
    requires: tuple[str, ...]
    kind: str
    report: Mapping[str, Any]
    isa: str
    root: Path
    host_bytes: int

    def start(self, plan: Plan, stored: Mapping[str, bytes], *, broken: str = "", fail_at: int = 0) -> Any:
        """Call the entry in a bundle with this plan."""
        bundles.write(self.root, plan, stored)
        module, _, name = self.entry.partition(":")
        served = standins.providers(plan, stored, fail_at)
        function = getattr(importlib.import_module(module), name)
        return function(standins.context(self.root, self.isa, self.requires, served, broken))


def main(spec: Mapping[str, Any]) -> None:
    """Every check that needs the plugin's code, in order; a line before and after each."""
    sys.path[:0] = spec["path"]
    subject = Subject(
        entry=spec["entry"],
        provides=tuple(spec["provides"]),
        requires=tuple(spec["requires"]),
        kind=spec["kind"],
        report=spec["report"],
        isa=spec["isa"],
        root=Path(spec["root"]),
        host_bytes=spec["host_bytes"],
    )
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr

    def check(name: str, action: Callable[[], None]) -> None:
        print(json.dumps({"begin": name}), file=answers, flush=True)
        outcome, detail = PASSED, ""
        try:
            action()
        except (BrokenError, ops.WrongError, collectives.BrokenGroupError) as broken:
            outcome, detail = FAILED, str(broken)
        except (SkippedError, ops.UntriedError) as skipped:
            outcome, detail = SKIPPED, str(skipped)
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - the plugin's own failure is the finding
            outcome, detail = FAILED, described(problem)
        print(json.dumps({"check": name, "outcome": outcome, "detail": detail}), file=answers, flush=True)

    for name, action in _checks(subject, spec["lifecycle"]):
        check(name, action)


def _checks(subject: Subject, lifecycle: bool) -> list[tuple[str, Callable[[], None]]]:
    found: list[tuple[str, Callable[[], None]]] = []
    first = next((case for case in cases(subject.report, subject.isa) if isinstance(case, Case)), None)
    plan, stored = _first(first)
    if lifecycle:
        found += [
            ("lifecycle: start and stop", lambda: _rounds(subject, plan, stored)),
            ("contract: what it provides", lambda: _contracts(subject, plan, stored)),
            ("lifecycle: stop twice", lambda: _stopped_twice(subject, plan, stored)),
            ("lifecycle: two at once", lambda: _two(subject, plan, stored)),
        ]
        found += [
            (f"lifecycle: {name} cannot be had", partial(_fails, subject, plan, stored, broken=name))
            for name in subject.requires
            if name not in ("kernels.pack", "model.decoder")
        ]
        if subject.kind == "backend":
            found += [
                (f"lifecycle: tensor {at} cannot be had", partial(_fails, subject, plan, stored, fail_at=at))
                for at in range(1, len(plan.weights) + 1)
            ]
            found.append(("lifecycle: a damaged plan", lambda: _damaged(subject, plan, stored)))
    if subject.kind == "transport":
        found += [
            (f"collective: {name}", partial(_collective, subject, plan, stored, action))
            for name, action in collectives.CHECKS.items()
        ]
    if subject.kind in ("backend", "kernels"):
        if lifecycle:
            found.append(("memory: what is taken is what the plan asks for", lambda: _memory(subject, plan, stored)))
            found.append(("limits: a bad step is an error", lambda: ops.refuses(subject, first)))
        tried = list(cases(subject.report, subject.isa))
        found += [(f"op: {case.name}", partial(ops.compare, subject, case)) for case in tried]
        found.append(("op: rows do not depend on their company", lambda: ops.alone(subject, tried)))
    return found


def _first(case: Case | None) -> tuple[Plan, dict[str, bytes]]:
    if case is not None:
        return case.plan, ops.stored(case)
    cache = Cache("kv", 1, 1, 16, 16, 16, "f32")
    weights = (Weight("w0", (64,), "f32", "rows", 256),)
    return Plan("conformance", LIMITS, 32, 0, (), (cache,), weights, ()), {"w0": bytes(256)}


def _rounds(subject: Subject, plan: Plan, stored: Mapping[str, bytes]) -> None:
    """Start and stop, several times in one process: nothing may stay behind."""
    _stop(subject.start(plan, stored))
    threads, files = _threads(), _files()
    for _ in range(_ROUNDS):
        _stop(subject.start(plan, stored))
    _nothing_left(threads, files, "after stop")


def _contracts(subject: Subject, plan: Plan, stored: Mapping[str, bytes]) -> None:
    """Every method and value of the protocols of what it provides."""
    provider = subject.start(plan, stored)
    try:
        for capability in subject.provides:
            protocol = _PROTOCOLS.get(capability)
            names = [*vars(protocol), *getattr(protocol, "__annotations__", {})] if protocol else []
            lacking = [name for name in names if not name.startswith("_") and not hasattr(provider, name)]
            if lacking:
                raise BrokenError(f"{capability}: its provider has no {', '.join(dict.fromkeys(lacking))}")
        if "storage.weights" in subject.provides:
            _served(provider, stored)
    finally:
        _stop(provider)


def _served(provider: Any, stored: Mapping[str, bytes]) -> None:
    for name, data in stored.items():
        if bytes(provider.tensor(name)) != data:
            raise BrokenError(f"storage.weights: tensor {name} has other bytes than the file")
    try:
        provider.tensor("no such tensor")
    except PihError:
        return
    raise BrokenError("storage.weights: a tensor that is not there is no error")


def _stopped_twice(subject: Subject, plan: Plan, stored: Mapping[str, bytes]) -> None:
    provider = subject.start(plan, stored)
    _stop(provider)
    _stop(provider)


def _two(subject: Subject, plan: Plan, stored: Mapping[str, bytes]) -> None:
    first = subject.start(plan, stored)
    try:
        _stop(subject.start(plan, stored))
    finally:
        _stop(first)


def _fails(subject: Subject, plan: Plan, stored: Mapping[str, bytes], *, broken: str = "", fail_at: int = 0) -> None:
    """Start must end with an error that says what is wrong, and keep nothing."""
    threads, files = _threads(), _files()
    for _ in range(2):
        try:
            provider = subject.start(plan, stored, broken=broken, fail_at=fail_at)
        except PihError:
            continue
        except Exception as problem:
            raise BrokenError(f"start ends with {described(problem)}: raise a WorkerError, or let it pass") from problem
        _stop(provider)
        if broken:
            raise SkippedError(f"it starts without {broken}, which it may require for the order of starting alone")
        raise BrokenError("start does not notice")
    _nothing_left(threads, files, "after a failed start")


def _damaged(subject: Subject, plan: Plan, stored: Mapping[str, bytes]) -> None:
    module, _, name = subject.entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    context = standins.context(subject.root, subject.isa, subject.requires, standins.providers(plan, stored))
    for text in ("", "{", plans.to_json(plan).replace('"buffer": "b', '"buffer": "x')):
        (subject.root / "plan.json").write_text(text)
        try:
            provider = function(context)
        except PihError:
            continue
        _stop(provider)
        raise BrokenError(f"it starts with the damaged plan {text[:40]!r}")


def _memory(subject: Subject, plan: Plan, stored: Mapping[str, bytes]) -> None:
    """Address space that is not given back, and what is resident beyond the plan and `host_bytes`."""
    rows = _CACHE_BYTES // (2 * 16 * 16 * 4)
    large = Cache("large", 1, 1, 16, 16, rows, "f32")
    wide = plans.Plan(**{**_fields(plan), "caches": (*plan.caches, large)})
    _stop(subject.start(wide, stored))
    before, resident = _status("VmSize"), _status("VmRSS")
    for _ in range(_ROUNDS):
        provider = subject.start(wide, stored)
        used = _status("VmRSS") - resident
        _stop(provider)
        del provider
    grown = _status("VmSize") - before
    if grown >= _CACHE_BYTES:
        raise BrokenError(f"{grown} bytes are not given back after {_ROUNDS} starts and stops")
    allowed = wide.arena_bytes + wide.cache_bytes + 2 * wide.weight_bytes + subject.host_bytes + (8 << 20)
    if used > allowed:
        raise BrokenError(f"{used} bytes at ready, plan and host_bytes allow {allowed}")


def _collective(
    subject: Subject, plan: Plan, stored: Mapping[str, bytes], action: Callable[[collectives.Make], None]
) -> None:
    """A transport's provider gives groups: `group(size)`."""
    provider = subject.start(plan, stored)
    try:
        action(provider.group)
    finally:
        _stop(provider)


def _fields(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__slots__}


def _stop(provider: Any) -> None:
    if hasattr(provider, "stop"):
        provider.stop()


def _nothing_left(threads: int, files: int, when: str) -> None:
    until = time.monotonic() + 2
    while (_threads() > threads or _files() > files) and time.monotonic() < until:
        time.sleep(0.02)
    if _threads() > threads:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        raise BrokenError(f"{_threads() - threads} threads are left {when}: {names or 'not of Python'}")
    if _files() > files:
        raise BrokenError(f"{_files() - files} open files are left {when}")


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
