"""surface.http: an OpenAI-compatible server in a thread of its own."""

from __future__ import annotations

from pih_runtime.contracts import Context, Engine, Text
from pih_surface_openai import sockets
from pih_surface_openai.app import Service
from pih_surface_openai.reading import Intake
from pih_surface_openai.server import HttpServer

__all__ = ["start"]
BODY_BYTES = 4 << 20


def start(context: Context) -> HttpServer:
    """Bind, then serve; requests are answered 503 until the worker is ready."""
    settings = context.counts(body_bytes=BODY_BYTES)
    engine: Engine = context.provider("execution.engine")
    text: Text = context.provider("model.text")
    service = Service(
        model=context.lock["service"]["model_name"],
        fingerprint=f"pih-{context.lock['plan']['sha256'].removeprefix('sha256:')[:12]}",
        intake=Intake(settings["body_bytes"]),
        engine=engine,
        text=text,
        ready=context.ready,
    )
    listener = sockets.listen(context.listen)
    context.log(f"listening on {sockets.address(listener)}")
    return HttpServer(service, listener, context.fail, context.log)
