"""health.probe: pages for an orchestrator's probes and for Prometheus."""

from __future__ import annotations

from pih_health_probe.metrics import exposition
from pih_runtime.contracts import Context, Engine, Http, Reply

__all__ = ["start"]
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Probe:
    """Serves health.probe; nothing to stop, its pages go with the server."""


def start(context: Context) -> Probe:
    """Add /health/live, /health/ready and /metrics to the server."""
    http: Http = context.provider("surface.http")
    engine: Engine = context.provider("execution.engine")

    def live() -> Reply:
        return Reply(200, _TEXT, b"live\n")

    def ready() -> Reply:
        return Reply(200, _TEXT, b"ready\n") if context.ready() else Reply(503, _TEXT, b"starting or stopping\n")

    def metrics() -> Reply:
        return Reply(200, _METRICS, exposition(context.lock, engine.metrics(), ready=context.ready()).encode())

    http.route("/health/live", live)
    http.route("/health/ready", ready)
    http.route("/metrics", metrics)
    return Probe()
