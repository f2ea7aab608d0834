"""A client of a surface over a socket, and the engine behind it that does as it is told."""

from __future__ import annotations

import http.client
import json
import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pih.conformance.findings import BrokenError
from pih.conformance.standins import Engine as Plain
from pih.conformance.subject import Subject, running
from pih_runtime.contracts import Piece, Request

SECONDS = 10.0
MODEL = "conformance"
CHAT = "/v1/chat/completions"
Said = tuple[int, str, bytes]  # status, content-type, body


class Engine(Plain):
    """execution.engine. pieces: the answer. refusal: raised instead. hold: no end until it is cancelled.

    requests: what it was asked for, in order.
    """

    def __init__(self, *pieces: Piece, refusal: Exception | None = None, hold: bool = False) -> None:
        self._pieces = pieces or (Piece("o", 1, 0), Piece("k", 2, 0, "stop"))
        self._refusal, self._hold = refusal, hold
        self.cancelled = threading.Event()
        self.requests: list[Request] = []

    def generate(self, request: Request, deliver: Callable[[Piece], None]) -> Callable[[], None]:
        """From a thread of its own, as engines do."""
        self.requests.append(request)
        if self._refusal is not None:
            raise self._refusal
        pieces = self._pieces[:1] if self._hold else self._pieces
        threading.Thread(target=lambda: deque(map(deliver, pieces), 0), daemon=True).start()
        return self.cancelled.set


@contextmanager
def server(subject: Subject, engine: Plain, **how: Any) -> Iterator[tuple[Any, str]]:
    """The provider, and the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="pih-http-") as folder:
        path = os.path.join(folder, "s")  # noqa: PTH118 - a string for socket
        with running(subject, served={"execution.engine": engine}, listen=f"unix:{path}", **how) as provider:
            yield provider, path


class Connection(http.client.HTTPConnection):
    """HTTP over the socket at a path."""

    def __init__(self, path: str) -> None:
        super().__init__("worker", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """As for a host and port."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


def ask(path: str, target: str, body: Any = None, kind: str = "application/json") -> Said:
    """POST of `body` as JSON, or as it is where it is bytes; GET where it is None."""
    connection = Connection(path)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", target, data, {"content-type": kind} if data else {})
        response = connection.getresponse()
        return response.status, response.getheader("content-type", ""), response.read()
    finally:
        connection.close()


def chat(**more: Any) -> dict[str, Any]:
    """The body of a chat, and what is asked for besides."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], **more}


def expect(what: str, said: Said, status: int) -> Any:
    """The JSON of an answer of this status."""
    if said[0] != status:
        raise BrokenError(f"{what}: status {said[0]}, not {status}: {said[2][:200]!r}")
    try:
        return json.loads(said[2])
    except ValueError:
        raise BrokenError(f"{what}: the answer is no JSON: {said[2][:200]!r}") from None


def error(what: str, said: Said, status: int) -> None:
    """Raises BrokenError unless it is an error object of this status."""
    body = expect(what, said, status)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not error.get("message") or "type" not in error:
        raise BrokenError(f"{what}: {body!r:.200} is no error object with message and type")
