"""A request's body: bounded, in time, JSON, an object of bounded parts, text throughout."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from pih_runtime.numbers import whole
from pih_surface_openai.errors import ApiError

SECONDS = 30
# Bodies of more than SMALL bytes share room for this many of the longest: each costs several times its length.
LONGEST_AT_ONCE = 2
SMALL = 1 << 16
# Values cost some 70 bytes each, however short they are written.
MOST_VALUES = 1 << 18
# A string, whole even where its end is missing, or what stands before a value. Possessive: nothing is tried twice.
_VALUE = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(slots=True)
class Intake:
    """limit: bytes of one body. held: bytes, beyond SMALL, of those that are read or worked on now."""

    limit: int
    held: int = 0


@asynccontextmanager
async def json_object(request: Request, intake: Intake) -> AsyncIterator[dict[str, Any]]:
    """The body as a JSON object, for as long as it is needed; ApiError where it is anything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # also keeps a web page from posting here without asking
        raise ApiError(415, "the request's content-type must be application/json")
    share = _Share(intake)
    try:
        yield _parsed(await _body(request, share))
    finally:
        intake.held -= share.held


@dataclass(slots=True)
class _Share:
    """What one body holds of the room for all."""

    intake: Intake
    held: int = 0

    def take(self, size: int) -> None:
        """Hold what a body of this size so far needs."""
        if size > self.intake.limit:
            raise ApiError(413, f"the body is longer than {self.intake.limit} bytes")
        more = max(0, size - SMALL) - self.held
        if self.intake.held + more > LONGEST_AT_ONCE * self.intake.limit:
            raise ApiError(503, "too many long bodies at once")
        self.held += more
        self.intake.held += more


async def _body(request: Request, share: _Share) -> bytes:
    length = request.headers.get("content-length", "")  # digits, as the protocol has checked
    if length and int(length) > share.intake.limit:
        share.take(int(length))
    chunks, size = [], 0
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                share.take(size)
                chunks.append(chunk)
    except TimeoutError as problem:
        raise ApiError(408, f"the body did not arrive within {SECONDS} s") from problem
    except ClientDisconnect as problem:
        raise ApiError(400, "the client closed the connection") from problem
    return b"".join(chunks)


def _parsed(body: bytes) -> dict[str, Any]:
    _check_count(body)
    try:
        text = body.decode()
        value = json.loads(text, parse_int=whole, parse_constant=_no_constant)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as problem:
        raise ApiError(400, "the body is nested too deeply") from problem
    except UnicodeDecodeError as problem:
        raise ApiError(400, f"the body is not UTF-8: {problem}") from problem
    except UnicodeEncodeError as problem:
        raise ApiError(400, "the body holds a lone surrogate, which no text contains") from problem
    except ValueError as problem:
        raise ApiError(400, f"the body is not JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    return value


def _check_count(body: bytes) -> None:
    """Before parsing: count strings, and what stands before every other value."""
    if sum(body.count(mark) for mark in (b",", b"[", b"{", b'"')) <= MOST_VALUES:
        return
    if next(islice(_VALUE.finditer(body), MOST_VALUES, None), None):
        raise ApiError(400, f"the body holds more than {MOST_VALUES} values")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
