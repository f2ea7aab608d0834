"""A request's body: bounded, in time, JSON, an object."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from pih_surface_openai.errors import ApiError

SECONDS = 30


async def json_object(request: Request, limit: int) -> dict[str, Any]:
    """The body as a JSON object; ApiError where it is anything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # also keeps a web page from posting here without asking
        raise ApiError(415, "the request's content-type must be application/json")
    text = await _body(request, limit)
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError as problem:
        raise ApiError(400, "the body is nested too deeply") from problem
    except ValueError as problem:
        raise ApiError(400, f"the body is not JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    return value


async def _body(request: Request, limit: int) -> bytes:
    chunks, size = [], 0
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise ApiError(413, f"the body is longer than {limit} bytes")
                chunks.append(chunk)
    except TimeoutError as problem:
        raise ApiError(408, f"the body did not arrive within {SECONDS} s") from problem
    except ClientDisconnect as problem:
        raise ApiError(400, "the client closed the connection") from problem
    return b"".join(chunks)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
