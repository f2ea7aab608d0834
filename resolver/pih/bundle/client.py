"""What `pih run` needs of HTTP: wait until a worker is ready, ask it one thing, read the answer as it comes.

Over a unix socket or a loopback address, with the standard library alone.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pih.reading import json_of
from pih_runtime.errors import WorkerError

_POLL = 0.02
_ANSWER = 600.0  # seconds that a worker may think before the next piece


def connect(address: str, timeout: float = _ANSWER) -> http.client.HTTPConnection:
    """A connection to 'unix:PATH' or 'HOST:PORT'."""
    if address.startswith("unix:"):
        return _UnixConnection(address.removeprefix("unix:"), timeout)
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)


def wait_ready(address: str, alive: Callable[[], bool], seconds: float) -> None:
    """Return when /health/ready says yes. Raises WorkerError where the worker ends first, or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive():
            raise WorkerError("the worker ended before it was ready")
        if _is_ready(address):
            return
        time.sleep(_POLL)
    raise WorkerError(f"the worker was not ready within {seconds:.0f} s")


def chat(address: str, request: Mapping[str, Any]) -> Iterator[str]:
    """POST /v1/chat/completions with streaming; yields the answer's text piece by piece."""
    body = json.dumps({**request, "stream": True})
    connection = connect(address)
    try:
        # A worker that refuses early may close its end before it has read all: its answer says why.
        with suppress(BrokenPipeError):
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise WorkerError(f"the worker answered {response.status}: {_message(response.read(1 << 16))}")
        yield from _pieces(response)
    except (OSError, http.client.HTTPException) as problem:
        raise WorkerError(f"the worker broke off: {problem}") from problem
    finally:
        connection.close()


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        event = json_of(data)
        if "error" in event:
            raise WorkerError(f"the worker gave up: {_message(data)}")
        for choice in event.get("choices", ()):
            if text := choice.get("delta", {}).get("content"):
                yield text
    raise WorkerError("the worker's answer broke off")


def _message(body: bytes) -> str:
    """The text of an OpenAI-style error, or the body as it is."""
    try:
        return str(json_of(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return body.decode(errors="replace").strip()


def _is_ready(address: str) -> bool:
    try:
        connection = connect(address, timeout=5.0)
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False  # not listening yet


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
