"""Kind health: pages for an orchestrator's probes and for Prometheus, over stand-ins for server and engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from pih.conformance.findings import BrokenError, Named
from pih.conformance.standins import Engine, Http
from pih.conformance.subject import Subject, running
from pih_runtime.contracts import Reply

_METRICS = (
    ("pih_requests_total", "counter", "Requests ended.", 3.0),
    ("pih_requests_running", "gauge", "Requests in the batch.", 0.5),
)
_FALLBACK = 'silu_mul: "slow"\nand \\ more'
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(
    rf'({_NAME})(\{{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*",?)*\}})? ([-+0-9.eE]+|NaN|[-+]?Inf)( -?\d+)?'
)


class _Counting(Engine):
    def metrics(self) -> Iterator[tuple[str, str, str, float]]:
        return iter(_METRICS)


def checks(subject: Subject) -> Iterator[Named]:
    """Liveness and readiness in their order, metrics in Prometheus's text format 0.0.4."""
    yield "health: live whatever the rest", partial(_live, subject)
    yield "health: ready when the worker says so, and no more when it stops", partial(_ready, subject)
    yield "health: metrics in Prometheus's format", partial(_metrics, subject)


def _live(subject: Subject) -> None:
    for ready in (False, True):
        http = Http()
        with running(subject, served={"surface.http": http}, ready=lambda ready=ready: ready):
            _status(http, "/health/live", 200)


def _ready(subject: Subject) -> None:
    http, state = Http(), [False]
    with running(subject, served={"surface.http": http}, ready=lambda: state[0]):
        for now, status in ((False, 503), (True, 200), (False, 503)):
            state[0] = now
            _status(http, "/health/ready", status)


def _metrics(subject: Subject) -> None:
    http, lock = Http(), {**subject.context().lock, "fallbacks": [_FALLBACK]}
    with running(subject, served={"surface.http": http, "execution.engine": _Counting()}, lock=lock):
        reply = _status(http, "/metrics", 200)
    if not reply.media_type.startswith("text/plain; version=0.0.4"):
        raise BrokenError(f"/metrics is sent as {reply.media_type}")
    found = _parsed(reply.body.decode())
    for name, kind, _, value in _METRICS:
        if found.get(name) != (kind, value):
            raise BrokenError(f"/metrics has {found.get(name)} for the engine's {kind} {name} {value}")
    if "silu_mul" not in reply.body.decode():
        raise BrokenError("/metrics does not name the lock's fallback")


def _parsed(text: str) -> dict[str, tuple[str, float]]:
    """Each metric's type and last value; BrokenError names the first line that Prometheus would not take."""
    types: dict[str, str] = {}
    found: dict[str, tuple[str, float]] = {}
    seen: set[str] = set()
    if not text.endswith("\n"):
        raise BrokenError("/metrics does not end its last line")
    for line in text[:-1].split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in types or kind not in ("counter", "gauge", "histogram", "summary", "untyped"):
                raise BrokenError(f"/metrics: {line!r}")
            types[name] = kind
        elif not line.startswith("# HELP ") and line:
            match = _SAMPLE.fullmatch(line)
            if match is None or match[1] not in types or (key := f"{match[1]}{match[2] or ''}") in seen:
                raise BrokenError(f"/metrics: {line!r} is no sample of a metric with a type, or the second of one")
            seen.add(key)
            found[match[1]] = (types[match[1]], float(match[3]))
    return found


def _status(http: Any, path: str, status: int) -> Reply:
    if path not in http.pages:
        raise BrokenError(f"there is no page {path}")
    reply: Reply = http.pages[path]()
    if reply.status != status:
        raise BrokenError(f"{path} answers {reply.status}, not {status}")
    return reply
