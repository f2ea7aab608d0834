"""What every kind must keep to: start, stop, failure at each point, twice, the contract's names, memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pih.conformance import left
from pih.conformance.findings import BrokenError, Named, SkippedError
from pih.conformance.left import Present, present
from pih.conformance.subject import Subject, function, running, stop
from pih_runtime import contracts
from pih_runtime import plan as plans
from pih_runtime.errors import PihError, described
from pih_runtime.plan import Cache, Plan

_PROTOCOLS: dict[str, type] = {
    "platform.host": contracts.Host,
    "storage.weights": contracts.Weights,
    "backend.device": contracts.Backend,
    "transport.collectives": contracts.Transport,
    "memory.pages": contracts.Pool,
    "model.text": contracts.Text,
    "execution.engine": contracts.Engine,
    "surface.http": contracts.Http,
}
_ROUNDS = 3
_CACHE_BYTES = 64 << 20  # large, and never touched: what is not given back shows
_SUITES_OWN = 8 << 20  # what the checks before this one may have left
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)


def checks(subject: Subject) -> Iterator[Named]:
    """Those of any plugin that runs in a worker, and of a backend what a failing tensor or plan does to it.

    To be asked for before anything of the plugin is imported: its memory is counted from here.
    """
    resident, before, process = _status("VmRSS"), present(), _process()
    yield "lifecycle: start and stop", partial(_rounds, subject, before)
    yield "lifecycle: signals, folder and umask are the worker's", partial(_kept, subject, process)
    yield "contract: what it provides", partial(_contracts, subject)
    yield "lifecycle: stop twice", partial(_stopped_twice, subject)
    yield "lifecycle: two at once", partial(_two, subject)
    for name in subject.requires:
        if name not in ("kernels.pack", "model.decoder"):
            yield f"lifecycle: {name} cannot be had", partial(_fails, subject, broken=name)
    if subject.kind == "backend":
        for at in range(1, len(subject.plan.weights) + 1):
            yield f"lifecycle: tensor {at} cannot be had", partial(_fails, subject, fail_at=at)
        yield "lifecycle: a damaged plan", partial(_damaged, subject)
    yield "memory: what is taken is what the plan asks for", partial(_memory, subject, resident)


def used(action: Callable[[], None]) -> None:
    """A check of what it does, over and over: nothing may stay behind of that either."""
    try:
        action()
        before = present()
        for _ in range(2):
            action()
    except BrokenError as broken:
        raise SkippedError("it does not do what it is for") from broken
    left.check(before, "after it was used")


def _rounds(subject: Subject, before: Present) -> None:
    """Import, start and stop, several times in one process: nothing may stay behind."""
    function(subject.entry)
    left.check_first(before, "by its import")
    stop(subject.start())
    left.check_first(before, "after stop")
    warm = present()
    for _ in range(_ROUNDS):
        stop(subject.start())
    left.check(warm, "after stop")


def _kept(subject: Subject, before: Mapping[str, Any]) -> None:
    """The worker has its handlers before any plugin starts; its folder and umask are the same for all of them."""

    def handle(_number: int, _frame: object) -> None:
        return

    _same(before, _process(), "its import")
    saved = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        held = _process()
        with running(subject):
            _same(held, _process(), "start")
        _same(held, _process(), "stop")
    finally:
        for number, own in saved.items():
            signal.signal(number, own)


def _same(before: Mapping[str, Any], now: Mapping[str, Any], when: str) -> None:
    if changed := [name for name, value in now.items() if value != before[name]]:
        raise BrokenError(f"{when} takes {', '.join(changed)} from the worker")


def _process() -> dict[str, Any]:
    """What is one for all plugins of a worker."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mask = sum(1 << number - 1 for number in _SIGNALS)
    return {
        **{number.name: signal.getsignal(number) for number in _SIGNALS},
        "the signals that are ignored": int(status["SigIgn"], 16) & mask,
        "the signals that are blocked": int(status["SigBlk"], 16) & mask,
        "the current folder": os.getcwd(),  # noqa: PTH109 - a name
        "the umask": status.get("Umask", ""),
    }


def _contracts(subject: Subject) -> None:
    """Every method and value of the protocols of what it provides."""
    with running(subject) as provider:
        for capability in subject.provides:
            protocol = _PROTOCOLS.get(capability)
            names = [*vars(protocol), *getattr(protocol, "__annotations__", {})] if protocol else []
            lacking = [name for name in names if not name.startswith("_") and not hasattr(provider, name)]
            if lacking:
                raise BrokenError(f"{capability}: its provider has no {', '.join(dict.fromkeys(lacking))}")


def _stopped_twice(subject: Subject) -> None:
    with running(subject) as provider:
        stop(provider)


def _two(subject: Subject) -> None:
    with running(subject):
        stop(subject.start())


def _fails(subject: Subject, *, broken: str = "", fail_at: int = 0) -> None:
    """Start must end with an error that says what is wrong, and keep nothing."""
    before = present()
    for _ in range(2):
        try:
            provider = subject.start(broken=broken, fail_at=fail_at)
        except PihError:
            continue
        except Exception as problem:
            raise BrokenError(f"start ends with {described(problem)}: raise a WorkerError, or let it pass") from problem
        stop(provider)
        if broken:
            raise SkippedError(f"it starts without {broken}, which it may require for the order of starting alone")
        raise BrokenError("start does not notice")
    left.check(before, "after a failed start")


def _damaged(subject: Subject) -> None:
    context = subject.context()
    for text in ("", "{", plans.to_json(subject.plan).replace('"buffer": "b', '"buffer": "x')):
        (subject.root / "plan.json").write_text(text)
        try:
            provider = subject.call(context)
        except PihError:
            continue
        stop(provider)
        raise BrokenError(f"it starts with the damaged plan {text[:40]!r}")


def _memory(subject: Subject, resident: int) -> None:
    """Address space that is not given back; what is resident beyond the plan and `host_bytes`, its imports included."""
    plan = _wide(subject.plan) if subject.kind == "backend" else subject.plan
    stop(subject.start(plan))
    before = _status("VmSize")
    for _ in range(_ROUNDS):
        provider = subject.start(plan)
        used = _status("VmRSS") - resident
        stop(provider)
        del provider
    grown = _status("VmSize") - before
    if grown >= _CACHE_BYTES:
        raise BrokenError(f"{grown} bytes are not given back after {_ROUNDS} starts and stops")
    allowed = plan.arena_bytes + plan.cache_bytes + 2 * plan.weight_bytes + subject.host_bytes + _SUITES_OWN
    if used > allowed:
        raise BrokenError(f"{used} bytes at ready, imports included; plan and host_bytes allow {allowed}")


def _wide(plan: Plan) -> Plan:
    """With a large cache beside its own."""
    rows = _CACHE_BYTES // (2 * 16 * 16 * 4)
    large = Cache("large", 1, 1, 16, 16, rows, "f32")
    return Plan(**{**_fields(plan), "caches": (*plan.caches, large)})


def _fields(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__slots__}


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))
