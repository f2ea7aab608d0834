"""The parameters of a request, checked: what is asked for, or an ApiError that names the key at fault.

Strict on purpose: a parameter that would change the answer and is not served is refused, not ignored.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pih_runtime.step import Sampling
from pih_surface_openai.errors import ApiError
from pih_surface_openai.messages import check_messages, check_text, shortened

# Keys that are served only with these values, which change nothing; true and 1 are not the same, nor are 1 and 1.0.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0, 0.0),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "prediction": (),
    "presence_penalty": (0, 0.0),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}
# Keys about the caller, not the answer.
_IGNORED = ("metadata", "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "user")
_LONGEST_STOP = 256  # characters; every new token is compared with each of them
_COLDEST = 1e-5  # a temperature below gives what 0 gives, or logits that single precision cannot hold
_SMALLEST = 1e-9  # as a share of probability it leaves the likeliest id alone, which is what 0 asks for
_COMPLETION_TOKENS = 16  # what OpenAI's completions give where nobody says


@dataclass(frozen=True, slots=True)
class Asked:
    """max_tokens: None is 'as the context allows'. prompt: text or ids; messages and template for chat."""

    model: str
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    prompt: str | tuple[int, ...] = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    template: Mapping[str, Any] | None = None


def chat(body: Mapping[str, Any], defaults: Mapping[str, Any]) -> Asked:
    """Parameters of /v1/chat/completions."""
    rest = dict(body)
    messages = check_messages(rest.pop("messages", None))
    template = rest.pop("chat_template_kwargs", None)
    if template is not None and not isinstance(template, dict):
        raise ApiError(400, "chat_template_kwargs must be an object", param="chat_template_kwargs")
    limits = {key: _integer(rest, key, 1, 1 << 31) for key in ("max_tokens", "max_completion_tokens")}
    if None not in limits.values() and len(set(limits.values())) > 1:
        raise ApiError(400, "max_tokens and max_completion_tokens differ", param="max_tokens")
    max_tokens = limits["max_completion_tokens"] or limits["max_tokens"]
    return _asked(rest, defaults, max_tokens, messages=messages, template=template or {})


def completion(body: Mapping[str, Any], defaults: Mapping[str, Any]) -> Asked:
    """Parameters of /v1/completions."""
    rest = dict(body)
    prompt = _prompt(rest.pop("prompt", None))
    max_tokens = _integer(rest, "max_tokens", 1, 1 << 31) or _COMPLETION_TOKENS
    return _asked(rest, defaults, max_tokens, prompt=prompt)


def _asked(rest: dict[str, Any], defaults: Mapping[str, Any], max_tokens: int | None, **own: Any) -> Asked:
    """The parameters both have; `rest` must be empty afterwards."""
    model = rest.pop("model", None)
    if not isinstance(model, str):
        raise ApiError(400, "model must be a string", param="model")
    stream = _boolean(rest, "stream")
    asked = Asked(
        model=model,
        sampling=_sampling(rest, defaults),
        max_tokens=max_tokens,
        stop=_stop(rest.pop("stop", None)),
        stream=stream,
        include_usage=_include_usage(rest.pop("stream_options", None), stream=stream),
        **own,
    )
    for key in _IGNORED:
        rest.pop(key, None)
    for key, value in rest.items():
        if key not in _NEUTRAL:
            name = shortened(key)
            raise ApiError(400, f"unrecognized parameter: {name}", param=name, code="unknown_parameter")
        if value is not None and not any(type(value) is type(one) and value == one for one in _NEUTRAL[key]):
            what = f"{key}: {reprlib.repr(value)} is not supported"
            raise ApiError(400, what, param=key, code="unsupported_parameter")
    return asked


def _sampling(rest: dict[str, Any], defaults: Mapping[str, Any]) -> Sampling:
    def given(value: float | None, key: str, otherwise: float) -> float:
        return float(defaults.get(key, otherwise)) if value is None else value

    top_k = _integer(rest, "top_k", -1, 1 << 31)
    seed = _integer(rest, "seed", -(1 << 63), 1 << 64)
    temperature = given(_number(rest, "temperature", 0, 2), "temperature", 1)
    return Sampling(
        temperature=0.0 if temperature < _COLDEST else temperature,
        top_k=max(0, int(given(top_k, "top_k", 0))),
        top_p=max(_SMALLEST, given(_number(rest, "top_p", 0, 1), "top_p", 1)),
        min_p=given(_number(rest, "min_p", 0, 1), "min_p", 0),
        seed=int.from_bytes(os.urandom(8), "little") if seed is None else seed % (1 << 64),
    )


def _prompt(value: Any) -> str | tuple[int, ...]:
    """A text, a list of ids, or a list of one of these."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        value = value[0]
    if isinstance(value, str):
        return check_text(value, "prompt")
    if isinstance(value, list) and all(type(item) is int for item in value):
        return tuple(value)
    several = isinstance(value, list) and any(isinstance(item, (str, list)) for item in value)
    what = "several prompts in one request are not supported" if several else "prompt must be a text or a list of ids"
    raise ApiError(400, what, param="prompt")


def _stop(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > 4 or not all(_is_stop(stop) for stop in stops):
        what = f"stop must be a text or a list of at most 4 texts, each of 1 to {_LONGEST_STOP} characters"
        raise ApiError(400, what, param="stop")
    return tuple(check_text(stop, "stop") for stop in stops)


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _LONGEST_STOP


def _include_usage(value: Any, *, stream: bool) -> bool:
    if value is None:
        return False
    if not stream:
        raise ApiError(400, "stream_options needs stream", param="stream_options")
    if not isinstance(value, dict) or not set(value) <= {"include_usage", "include_obfuscation"}:
        raise ApiError(400, "stream_options must be an object with include_usage", param="stream_options")
    rest = dict(value)
    if _boolean(rest, "include_obfuscation"):
        raise ApiError(400, "include_obfuscation is not supported", param="stream_options")
    return _boolean(rest, "include_usage")


def _boolean(rest: dict[str, Any], key: str) -> bool:
    value = rest.pop(key, None)
    if value is not None and not isinstance(value, bool):
        raise ApiError(400, f"{key} must be true or false", param=key)
    return value is True


def _integer(rest: dict[str, Any], key: str, low: int, end: int) -> int | None:
    value = rest.pop(key, None)
    if value is None:
        return None
    if type(value) is not int or not low <= value < end:
        raise ApiError(400, f"{key} must be a whole number from {low} to {end - 1}", param=key)
    return value


def _number(rest: dict[str, Any], key: str, low: float, high: float) -> float | None:
    """A number from low to high."""
    value = rest.pop(key, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ApiError(400, f"{key} must be a number from {low} to {high}", param=key)
    return float(value)
