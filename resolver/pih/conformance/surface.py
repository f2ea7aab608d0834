"""Kind surface: OpenAI's protocol over HTTP, against an engine that does as it is told."""

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
from functools import partial
from pathlib import Path
from typing import Any

from pih.conformance.findings import BrokenError, Named
from pih.conformance.standins import Engine as Plain
from pih.conformance.subject import Subject, running
from pih_runtime.contracts import Piece, Reply, Request
from pih_runtime.errors import WorkerError

_SECONDS = 10.0
_MODEL = "conformance"
_CHAT = "/v1/chat/completions"
Said = tuple[int, str, bytes]  # status, content-type, body


class Engine(Plain):
    """execution.engine. pieces: the answer. refusal: raised instead. hold: no end until it is cancelled."""

    def __init__(self, *pieces: Piece, refusal: Exception | None = None, hold: bool = False) -> None:
        self._pieces = pieces or (Piece("o", 1, 0), Piece("k", 2, 0, "stop"))
        self._refusal, self._hold = refusal, hold
        self.cancelled = threading.Event()

    def generate(self, _request: Request, deliver: Callable[[Piece], None]) -> Callable[[], None]:
        """From a thread of its own, as engines do."""
        if self._refusal is not None:
            raise self._refusal
        pieces = self._pieces[:1] if self._hold else self._pieces
        threading.Thread(target=lambda: deque(map(deliver, pieces), 0), daemon=True).start()
        return self.cancelled.set


def checks(subject: Subject) -> Iterator[Named]:
    """Answers, errors, streams, clients that leave, pages of others."""
    yield "http: the model is listed", partial(_models, subject)
    yield "http: whole answers", partial(_whole, subject)
    yield "http: streamed answers", partial(_streamed, subject)
    yield "http: errors are OpenAI's error objects", partial(_errors, subject)
    yield "http: not ready is 503", partial(_unready, subject)
    yield "http: an engine's failure has its status, or ends the stream", partial(_failures, subject)
    yield "http: a client that leaves cancels its request", partial(_leaves, subject)
    yield "http: pages that others add", partial(_pages, subject)
    yield "http: after stop nobody is served", partial(_stopped, subject)


@contextmanager
def _server(subject: Subject, engine: Plain, **how: Any) -> Iterator[tuple[Any, str]]:
    """The provider, and the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="pih-http-", dir="/tmp") as folder:
        path = os.path.join(folder, "s")  # noqa: PTH118 - a string for socket
        with running(subject, served={"execution.engine": engine}, listen=f"unix:{path}", **how) as provider:
            yield provider, path


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("worker", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(self._path)


def _ask(path: str, target: str, body: Any = None, kind: str = "application/json") -> Said:
    connection = _Connection(path)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", target, data, {"content-type": kind} if data else {})
        response = connection.getresponse()
        return response.status, response.getheader("content-type", ""), response.read()
    finally:
        connection.close()


def _chat(**more: Any) -> dict[str, Any]:
    return {"model": _MODEL, "messages": [{"role": "user", "content": "hello"}], **more}


def _expect(what: str, said: Said, status: int) -> Any:
    """The JSON of an answer of this status."""
    if said[0] != status:
        raise BrokenError(f"{what}: status {said[0]}, not {status}: {said[2][:200]!r}")
    try:
        return json.loads(said[2])
    except ValueError:
        raise BrokenError(f"{what}: the answer is no JSON: {said[2][:200]!r}") from None


def _error(what: str, said: Said, status: int) -> None:
    body = _expect(what, said, status)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not error.get("message") or "type" not in error:
        raise BrokenError(f"{what}: {body!r:.200} is no error object with message and type")


def _models(subject: Subject) -> None:
    with _server(subject, Engine()) as (_, path):
        names = [card.get("id") for card in _expect("/v1/models", _ask(path, "/v1/models"), 200).get("data", ())]
        if names != [_MODEL]:
            raise BrokenError(f"/v1/models lists {names}, not the lock's service.model_name")


def _whole(subject: Subject) -> None:
    with _server(subject, Engine()) as (_, path):
        body = _expect(_CHAT, _ask(path, _CHAT, _chat()), 200)
        choice = body["choices"][0]
        if (choice["message"]["content"], choice["finish_reason"]) != ("ok", "stop"):
            raise BrokenError(f"{_CHAT}: the answer is {choice!r}, the engine said 'ok' and stop")
        if body["usage"]["completion_tokens"] != 2:
            raise BrokenError(f"{_CHAT}: usage {body['usage']!r} for an answer of 2 tokens")
        body = _expect("/v1/completions", _ask(path, "/v1/completions", {"model": _MODEL, "prompt": "hello"}), 200)
        if body["choices"][0]["text"] != "ok":
            raise BrokenError(f"/v1/completions: the answer is {body['choices'][0]!r}, the engine said 'ok'")


def _events(said: Said) -> list[Any]:
    """The stream's events; BrokenError where it is none or does not end as streams do."""
    if said[0] != 200 or not said[1].startswith("text/event-stream"):
        raise BrokenError(f"a stream has status {said[0]} and content-type {said[1]!r}")
    parts = [part for part in said[2].decode().split("\n\n") if part]
    if not all(part.startswith("data: ") for part in parts) or parts[-1:] != ["data: [DONE]"]:
        raise BrokenError(f"a stream is not events with data, the last of them [DONE]: {said[2][-200:]!r}")
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def _streamed(subject: Subject) -> None:
    with _server(subject, Engine()) as (_, path):
        events = _events(_ask(path, _CHAT, _chat(stream=True)))
        choices = [event["choices"][0] for event in events if event["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        if text != "ok" or choices[-1]["finish_reason"] != "stop":
            raise BrokenError(f"the stream gives {text!r}, {choices[-1]['finish_reason']}; the engine said 'ok', stop")


def _errors(subject: Subject) -> None:
    with _server(subject, Engine(refusal=ValueError("the prompt does not fit"))) as (_, path):
        _error("no such path", _ask(path, "/v1/nothing"), 404)
        _error("GET of what is for POST", _ask(path, _CHAT), 405)
        _error("a body that is no JSON", _ask(path, _CHAT, b"{"), 400)
        _error("a body that is no object", _ask(path, _CHAT, [1]), 400)
        _error("messages that are none", _ask(path, _CHAT, _chat(messages="hello")), 400)
        _error("another model", _ask(path, _CHAT, _chat(model="another")), 404)
        _error("a prompt that the engine refuses", _ask(path, _CHAT, _chat()), 400)
        _error("a prompt that the engine refuses, streamed", _ask(path, _CHAT, _chat(stream=True)), 400)


def _unready(subject: Subject) -> None:
    with _server(subject, Engine(), ready=lambda: False) as (_, path):
        _error("before the worker is ready", _ask(path, _CHAT, _chat()), 503)
    with _server(subject, Engine(refusal=WorkerError("the worker is stopping"))) as (_, path):
        _error("while the engine drains", _ask(path, _CHAT, _chat()), 503)


def _failures(subject: Subject) -> None:
    with _server(subject, Engine(Piece("the device is lost", 0, 0, "error"))) as (_, path):
        for stream in (False, True):
            _error("the engine fails at once", _ask(path, _CHAT, _chat(stream=stream)), 500)
    late = Engine(Piece("o", 1, 0), Piece("the device is lost", 1, 0, "error"))
    with _server(subject, late) as (_, path):
        _error("the engine fails midway", _ask(path, _CHAT, _chat()), 500)
        events = _events(_ask(path, _CHAT, _chat(stream=True)))
        if "the device is lost" not in json.dumps(events[-1].get("error", "")):
            raise BrokenError(f"the engine fails midway, and the stream ends with {events[-1]!r}")


def _leaves(subject: Subject) -> None:
    for stream in (False, True):
        engine = Engine(Piece("o", 1, 0), hold=True)
        with _server(subject, engine) as (_, path):
            connection = _Connection(path)
            data = json.dumps(_chat(stream=stream))
            connection.request("POST", _CHAT, data, {"content-type": "application/json"})
            if stream:
                connection.getresponse().read(1)
            assert connection.sock is not None
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            if not engine.cancelled.wait(_SECONDS):
                how = "of a stream " if stream else ""
                raise BrokenError(f"the client {how}has gone, and its request is not cancelled")


def _pages(subject: Subject) -> None:
    with _server(subject, Engine(), ready=lambda: False) as (provider, path):
        provider.route("/health/ready", lambda: Reply(503, "text/plain; charset=utf-8", b"starting\n"))
        found = _ask(path, "/health/ready")
        if (found[0], found[2]) != (503, b"starting\n") or not found[1].startswith("text/plain"):
            raise BrokenError(f"an added page of status 503 is served as {found}")


def _stopped(subject: Subject) -> None:
    with _server(subject, Engine()) as (provider, path):
        _ask(path, "/v1/models")
        provider.stop()
        if Path(path).exists():
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(path) == 0:
                    raise BrokenError("after stop it still takes connections")
