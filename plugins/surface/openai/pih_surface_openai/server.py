"""uvicorn in a thread: no signal handlers, no logging set-up, no access log."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.config import Config
from uvicorn.server import Server

from pih_runtime.contracts import Reply
from pih_surface_openai import connections
from pih_surface_openai.app import Service, application, end_open

# Answers that still stream when the worker stops have this long to reach their clients.
SHUTDOWN_SECONDS = 1
# Prompts turned into ids at once: each takes memory, and cores that compute.
PROMPTS_AT_ONCE = 2


class HttpServer:
    """Serves surface.http."""

    def __init__(
        self,
        service: Service,
        listener: socket.socket,
        fail: Callable[[BaseException], None],
        log: Callable[[str], None],
    ) -> None:
        self._service = service
        self._listener = listener
        self._file = Path(listener.getsockname()) if listener.family == socket.AF_UNIX else None
        self._fail = fail
        self._app = application(service)
        self._server = Server(
            Config(
                self._app,
                http=connections.Connection,
                loop="none",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=connections.IDLE_SECONDS,
                h11_max_incomplete_event_size=connections.HEAD_BYTES,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(partial(_trouble, log))
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def route(self, path: str, answer: Callable[[], Reply]) -> None:
        """Add a page; it is served at once."""

        async def endpoint(_request: Request) -> Response:
            reply = answer()
            return Response(reply.body, status_code=reply.status, media_type=reply.media_type)

        self._app.router.routes.append(Route(path, endpoint, methods=["GET"]))

    def stop(self) -> None:
        """Stop listening, tell clients whose answers are still on their way, then close."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(end_open, self._service)
        self._server.should_exit = True
        self._thread.join()
        self._loop.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_default_executor(ThreadPoolExecutor(PROMPTS_AT_ONCE, "prompts"))
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[self._listener]))
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - told to the microkernel as the first cause
            self._fail(problem)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())


def _trouble(log: Callable[[str], None], loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
    """What the loop lives through. Of the host, such as too many open files, a line; of a defect, all there is."""
    problem = found.get("exception")
    if isinstance(problem, OSError):
        log(f"http: {found['message']}: {problem}")
    else:
        loop.default_exception_handler(found)
