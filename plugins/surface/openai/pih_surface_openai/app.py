"""Routes: what each path answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pih_runtime.contracts import Engine, Request, Text, TooLongError
from pih_surface_openai import parameters
from pih_surface_openai.errors import ApiError
from pih_surface_openai.generation import STOPPING, Form, Generation, Pieces, write_events, write_whole
from pih_surface_openai.messages import shortened
from pih_surface_openai.parameters import Asked
from pih_surface_openai.reading import Intake, json_object
from pih_surface_openai.shapes import CHAT, COMPLETION, Shape


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes answer from. fingerprint: names the deployment. open: answers on their way."""

    model: str
    fingerprint: str
    intake: Intake
    engine: Engine
    text: Text
    ready: Callable[[], bool]
    started: int = field(default_factory=lambda: int(time.time()))
    open: set[Pieces] = field(default_factory=set)


def application(service: Service) -> Starlette:
    """The ASGI application; every error it gives is an OpenAI error object."""
    return Starlette(
        routes=[
            Route("/v1/models", partial(_models, service), methods=["GET"]),
            Route("/v1/models/{model:path}", partial(_model, service), methods=["GET"]),
            Route("/v1/completions", partial(_completions, service), methods=["POST"]),
            Route("/v1/chat/completions", partial(_chat, service), methods=["POST"]),
        ],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            Exception: _internal_error,
        },
    )


def end_open(service: Service) -> None:
    """Tell the clients of all answers on their way that the worker stops; called in the server's loop."""
    for pieces in service.open:
        pieces.put_nowait(STOPPING)


async def _models(service: Service, _request: HttpRequest) -> Response:
    return JSONResponse({"object": "list", "data": [_card(service)]})


async def _model(service: Service, request: HttpRequest) -> Response:
    _check_model(service, request.path_params["model"])
    return JSONResponse(_card(service))


async def _completions(service: Service, request: HttpRequest) -> Generation:
    _check_ready(service)
    async with json_object(request, service.intake) as body:
        asked = parameters.completion(body, service.text.defaults)
        _check_model(service, asked.model)
        if isinstance(asked.prompt, str):
            ids = await _ids(service, "prompt", service.text.encode, asked.prompt)
        else:
            ids = asked.prompt
    return _generation(service, asked, ids, COMPLETION)


async def _chat(service: Service, request: HttpRequest) -> Generation:
    _check_ready(service)
    async with json_object(request, service.intake) as body:
        asked = parameters.chat(body, service.text.defaults)
        _check_model(service, asked.model)
        if len(asked.messages) >= service.engine.context:  # none is less than a token
            raise _too_long(service, f"there are {len(asked.messages)} messages", "messages")
        ids = await _ids(service, "messages", service.text.chat, asked.messages, asked.template)
    return _generation(service, asked, ids, CHAT)


async def _ids(service: Service, param: str, encode: Callable[..., list[int]], *arguments: Any) -> tuple[int, ...]:
    """In a thread: a long text takes long, and other answers stream meanwhile."""
    most = service.engine.context - 1
    try:
        return tuple(await asyncio.to_thread(encode, *arguments, most))
    except TooLongError as problem:
        raise _too_long(service, str(problem), param) from problem
    except ValueError as problem:
        raise ApiError(400, str(problem), param=param) from problem


def _too_long(service: Service, what: str, param: str) -> ApiError:
    what = f"{what}; the context is {service.engine.context}, answer included"
    return ApiError(400, what, param=param, code="context_length_exceeded")


def _generation(service: Service, asked: Asked, prompt: tuple[int, ...], shape: Shape) -> Generation:
    form = Form(
        shape=shape,
        head={
            "id": shape.prefix + secrets.token_hex(12),
            "created": int(time.time()),
            "model": service.model,
            "system_fingerprint": service.fingerprint,
        },
        prompt=len(prompt),
        include_usage=asked.include_usage,
    )
    request = Request(
        prompt=prompt,
        max_tokens=asked.max_tokens or service.engine.context,
        sampling=asked.sampling,
        stop_ids=service.text.stop_ids,
        stop=asked.stop,
    )
    write = partial(write_events if asked.stream else write_whole, form)
    return Generation(service.engine, request, write, service.open)


def _card(service: Service) -> Mapping[str, Any]:
    return {
        "id": service.model,
        "object": "model",
        "created": service.started,
        "owned_by": "pih",
        "max_model_len": service.engine.context,
    }


def _check_ready(service: Service) -> None:
    if not service.ready():
        raise ApiError(503, "the worker is starting or stopping")


def _check_model(service: Service, model: str) -> None:
    if model != service.model:
        what = f"there is no model {shortened(model)!r} here; this worker serves {service.model!r}"
        raise ApiError(404, what, param="model", code="model_not_found")


async def _api_error(_request: HttpRequest, problem: Exception) -> Response:
    assert isinstance(problem, ApiError)
    return problem.response()


async def _http_error(request: HttpRequest, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    what = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
    response = ApiError(problem.status_code, what.get(problem.status_code, problem.detail)).response()
    response.headers.update(problem.headers or {})
    return response


async def _internal_error(_request: HttpRequest, problem: Exception) -> Response:
    return ApiError(500, f"internal error: {type(problem).__name__}").response()
