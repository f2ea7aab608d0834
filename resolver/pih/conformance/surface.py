"""Kind surface: OpenAI's protocol over HTTP, against an engine that does as it is told."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pih.conformance import asked
from pih.conformance.client import CHAT, MODEL, SECONDS, Connection, Engine, Said, ask, chat, error, expect, server
from pih.conformance.findings import BrokenError, Named
from pih.conformance.subject import Subject
from pih_runtime.contracts import Piece, Reply
from pih_runtime.errors import WorkerError


def checks(subject: Subject) -> Iterator[Named]:
    """Answers, errors, streams, clients that leave, pages of others."""
    yield "http: the model is listed", partial(_models, subject)
    yield "http: whole answers", partial(_whole, subject)
    yield "http: streamed answers", partial(_streamed, subject)
    yield "http: what is asked for reaches the engine, or is refused", partial(asked.reaches, subject)
    yield "http: who names no seed gets one of their own", partial(asked.draws, subject)
    yield "http: errors are OpenAI's error objects", partial(_errors, subject)
    yield "http: not ready is 503", partial(_unready, subject)
    yield "http: an engine's failure has its status, or ends the stream", partial(_failures, subject)
    yield "http: a client that leaves cancels its request", partial(_leaves, subject)
    yield "http: pages that others add", partial(_pages, subject)
    yield "http: after stop nobody is served", partial(_stopped, subject)


def _models(subject: Subject) -> None:
    with server(subject, Engine()) as (_, path):
        names = [card.get("id") for card in expect("/v1/models", ask(path, "/v1/models"), 200).get("data", ())]
        if names != [MODEL]:
            raise BrokenError(f"/v1/models lists {names}, not the lock's service.model_name")


def _whole(subject: Subject) -> None:
    with server(subject, Engine()) as (_, path):
        body = expect(CHAT, ask(path, CHAT, chat()), 200)
        choice = body["choices"][0]
        if (choice["message"]["content"], choice["finish_reason"]) != ("ok", "stop"):
            raise BrokenError(f"{CHAT}: the answer is {choice!r}, the engine said 'ok' and stop")
        if body["usage"]["completion_tokens"] != 2:
            raise BrokenError(f"{CHAT}: usage {body['usage']!r} for an answer of 2 tokens")
        body = expect("/v1/completions", ask(path, "/v1/completions", {"model": MODEL, "prompt": "hello"}), 200)
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
    with server(subject, Engine()) as (_, path):
        events = _events(ask(path, CHAT, chat(stream=True)))
        choices = [event["choices"][0] for event in events if event["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        if text != "ok" or choices[-1]["finish_reason"] != "stop":
            raise BrokenError(f"the stream gives {text!r}, {choices[-1]['finish_reason']}; the engine said 'ok', stop")


def _errors(subject: Subject) -> None:
    with server(subject, Engine(refusal=ValueError("the prompt does not fit"))) as (_, path):
        error("no such path", ask(path, "/v1/nothing"), 404)
        error("GET of what is for POST", ask(path, CHAT), 405)
        error("a body that is no JSON", ask(path, CHAT, b"{"), 400)
        error("a body that is no object", ask(path, CHAT, [1]), 400)
        error("messages that are none", ask(path, CHAT, chat(messages="hello")), 400)
        error("another model", ask(path, CHAT, chat(model="another")), 404)
        error("a prompt that the engine refuses", ask(path, CHAT, chat()), 400)
        error("a prompt that the engine refuses, streamed", ask(path, CHAT, chat(stream=True)), 400)


def _unready(subject: Subject) -> None:
    with server(subject, Engine(), ready=lambda: False) as (_, path):
        error("before the worker is ready", ask(path, CHAT, chat()), 503)
    with server(subject, Engine(refusal=WorkerError("the worker is stopping"))) as (_, path):
        error("while the engine drains", ask(path, CHAT, chat()), 503)


def _failures(subject: Subject) -> None:
    with server(subject, Engine(Piece("the device is lost", 0, 0, "error"))) as (_, path):
        for stream in (False, True):
            error("the engine fails at once", ask(path, CHAT, chat(stream=stream)), 500)
    late = Engine(Piece("o", 1, 0), Piece("the device is lost", 1, 0, "error"))
    with server(subject, late) as (_, path):
        error("the engine fails midway", ask(path, CHAT, chat()), 500)
        events = _events(ask(path, CHAT, chat(stream=True)))
        if "the device is lost" not in json.dumps(events[-1].get("error", "")):
            raise BrokenError(f"the engine fails midway, and the stream ends with {events[-1]!r}")


def _leaves(subject: Subject) -> None:
    for stream in (False, True):
        engine = Engine(Piece("o", 1, 0), hold=True)
        with server(subject, engine) as (_, path):
            connection = Connection(path)
            data = json.dumps(chat(stream=stream))
            connection.request("POST", CHAT, data, {"content-type": "application/json"})
            if stream:
                connection.getresponse().read(1)
            assert connection.sock is not None
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            if not engine.cancelled.wait(SECONDS):
                how = "of a stream " if stream else ""
                raise BrokenError(f"the client {how}has gone, and its request is not cancelled")


def _pages(subject: Subject) -> None:
    with server(subject, Engine(), ready=lambda: False) as (provider, path):
        provider.route("/health/ready", lambda: Reply(503, "text/plain; charset=utf-8", b"starting\n"))
        found = ask(path, "/health/ready")
        if (found[0], found[2]) != (503, b"starting\n") or not found[1].startswith("text/plain"):
            raise BrokenError(f"an added page of status 503 is served as {found}")


def _stopped(subject: Subject) -> None:
    with server(subject, Engine()) as (provider, path):
        ask(path, "/v1/models")
        provider.stop()
        if Path(path).exists():
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(path) == 0:
                    raise BrokenError("after stop it still takes connections")
