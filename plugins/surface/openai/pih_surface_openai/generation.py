"""One answer on its way to one client: whole or as server-sent events, cancelled when the client goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from pih_runtime.contracts import Engine, Piece, Request
from pih_runtime.errors import WorkerError
from pih_surface_openai.errors import ApiError
from pih_surface_openai.shapes import Shape, usage

Pieces = asyncio.Queue[Piece | None]  # None: the client has gone
STOPPING = Piece(text="the worker is stopping", tokens=0, cached=0, finish="error")
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
_JSON = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is written. head: id, created, model, fingerprint. prompt: its tokens, for usage."""

    shape: Shape
    head: dict[str, Any]
    prompt: int
    include_usage: bool


@dataclass(frozen=True, slots=True)
class Generation:
    """An ASGI response. open: queues of all answers on their way, so that a stopping worker can tell their clients."""

    engine: Engine
    request: Request
    write: Callable[[Pieces, Send], Awaitable[None]]
    open: set[Pieces]

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Generate while `write` sends; whatever ends it, the engine is told."""
        pieces: Pieces = asyncio.Queue()
        cancel = _begin(self.engine, self.request, pieces)
        watch = asyncio.create_task(_watch(receive, pieces))
        self.open.add(pieces)
        try:
            await self.write(pieces, send)
        finally:
            self.open.discard(pieces)
            watch.cancel()
            cancel()


async def write_whole(form: Form, pieces: Pieces, send: Send) -> None:
    """One JSON object when the answer is complete."""
    texts = []
    async for piece in _until_end(pieces):
        _raise_failure(piece)
        texts.append(piece.text)
        if piece.finish:
            choice = form.shape.whole("".join(texts), piece.finish)
            body = {**form.head, "object": form.shape.whole_object, "choices": [choice]}
            await send({"type": "http.response.start", "status": 200, "headers": _JSON})
            await send(_body(_dump({**body, "usage": usage(form.prompt, piece)}), more=False))


async def write_events(form: Form, pieces: Pieces, send: Send) -> None:
    """A chunk for each piece. Headers wait for the first piece: until then a failure still has its status."""
    base = {**form.head, "object": form.shape.chunk_object}
    if form.include_usage:
        base["usage"] = None
    started = False
    async for piece in _until_end(pieces):
        if not started:
            _raise_failure(piece)
            await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
            for choice in form.shape.opening:
                await send(_event({**base, "choices": [choice]}))
            started = True
        if piece.finish == "error":
            await send(_data(ApiError(500, piece.text).body()))
        elif piece.text:
            await send(_event({**base, "choices": [form.shape.part(piece.text, None)]}))
        if piece.finish in ("stop", "length"):
            await send(_event({**base, "choices": [form.shape.part("", piece.finish)]}))
            if form.include_usage:
                await send(_event({**base, "choices": [], "usage": usage(form.prompt, piece)}))
        if piece.finish:
            await send(_body(b"data: [DONE]\n\n", more=False))


def _begin(engine: Engine, request: Request, pieces: Pieces) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def deliver(piece: Piece) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: the server stopped before the engine
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    try:
        return engine.generate(request, deliver)
    except ValueError as problem:
        raise ApiError(400, str(problem), code="invalid_prompt") from problem
    except WorkerError as problem:
        raise ApiError(503, str(problem)) from problem


async def _watch(receive: Receive, pieces: Pieces) -> None:
    """Wait for the client to leave; the request's body has been read."""
    while (await receive())["type"] != "http.disconnect":
        continue
    pieces.put_nowait(None)


async def _until_end(pieces: Pieces) -> AsyncIterator[Piece]:
    while (piece := await pieces.get()) is not None:
        yield piece
        if piece.finish:
            return


def _raise_failure(piece: Piece) -> None:
    if piece.finish == "error":
        raise ApiError(503 if piece is STOPPING else 500, piece.text)


def _event(value: dict[str, Any]) -> Message:
    return _data(_dump(value))


def _data(value: bytes) -> Message:
    return _body(b"data: " + value + b"\n\n", more=True)


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
