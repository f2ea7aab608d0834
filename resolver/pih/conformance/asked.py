"""What a client asks for reaches the engine, or is refused: nothing that would change the answer is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pih.conformance.client import CHAT, MODEL, Engine, ask, chat, expect, server
from pih.conformance.findings import BrokenError
from pih.conformance.standins import Text
from pih.conformance.subject import Subject
from pih_runtime.contracts import Request

_COMPLETIONS = "/v1/completions"
# what is asked for, and how the engine's request shows it
_SERVED: tuple[tuple[dict[str, Any], Callable[[Request], bool]], ...] = (
    ({}, lambda request: request.stop_ids == Text.stop_ids and request.max_tokens > 0),
    ({"max_tokens": 7}, lambda request: request.max_tokens == 7),
    ({"temperature": 0.5}, lambda request: request.sampling.temperature == 0.5),
    ({"temperature": 0}, lambda request: request.sampling.temperature == 0),
    ({"top_p": 0.25}, lambda request: request.sampling.top_p == 0.25),
    ({"seed": 7}, lambda request: request.sampling.seed == 7),
    ({"stop": "xy"}, lambda request: request.stop == ("xy",)),
    ({"stop": ["xy", "z"]}, lambda request: set(request.stop) == {"xy", "z"}),
)
# what no engine's request has a field for
_REFUSED: tuple[dict[str, Any], ...] = (
    {"frequency_penalty": 1.5},
    {"presence_penalty": 1.5},
    {"logit_bias": {"5": 100}},
    {"n": 2},
)


def reaches(subject: Subject) -> None:
    """Each parameter alone, whole and streamed, of a chat and of a completion."""
    engine = Engine()
    with server(subject, engine) as (_, path):
        for target, body in ((CHAT, chat()), (_COMPLETIONS, {"model": MODEL, "prompt": "hello"})):
            for stream in (False, True):
                for more, shows in _SERVED:
                    status = ask(path, target, {**body, **more, "stream": stream})[0]
                    if status == 200 and not shows(engine.requests[-1]):
                        raise BrokenError(f"{target} with {more!r} asks the engine for {engine.requests[-1]!r:.300}")
                    if status not in (200, 400, 422):
                        raise BrokenError(f"{target} with {more!r}: status {status}, neither served nor refused")
                for more in _REFUSED:
                    if ask(path, target, {**body, **more, "stream": stream})[0] == 200:
                        raise BrokenError(f"{target} with {more!r} is answered as if nobody had asked for it")
        _prompts(engine, path)


def _prompts(engine: Engine, path: str) -> None:
    for target, bodies in (
        (CHAT, [chat(messages=[{"role": "user", "content": text}]) for text in ("ab", "ba")]),
        (_COMPLETIONS, [{"model": MODEL, "prompt": text} for text in ("ab", "ba")]),
    ):
        for body in bodies:
            expect(target, ask(path, target, body), 200)
        if engine.requests[-1].prompt == engine.requests[-2].prompt:
            raise BrokenError(f"{target}: two texts give one prompt, {engine.requests[-1].prompt!r:.100}")


def draws(subject: Subject) -> None:
    """Or everybody would get the same answer."""
    engine = Engine()
    with server(subject, engine) as (_, path):
        for _ in range(3):
            expect(CHAT, ask(path, CHAT, chat(temperature=1)), 200)
    seeds = [request.sampling.seed for request in engine.requests]
    if len(set(seeds)) == 1:
        raise BrokenError(f"three requests without a seed are all drawn with {seeds[0]}")
