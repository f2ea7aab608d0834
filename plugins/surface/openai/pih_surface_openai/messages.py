"""Chat messages, checked and brought to the one form that templates expect: role and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pih_surface_openai.errors import ApiError

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_KEYS = frozenset({"role", "content", "name", "reasoning_content", "refusal", "tool_calls", "function_call", "audio"})
_EMPTY = {"refusal": (None,), "tool_calls": (None, []), "function_call": (None,), "audio": (None,)}  # what answers hold


def check_messages(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Messages as role and content, in order; ApiError names the place at fault."""
    if not isinstance(value, list) or not value:
        raise ApiError(400, "messages must be a list with at least one message", param="messages")
    return tuple(_message(item, f"messages[{index}]") for index, item in enumerate(value))


def check_text(value: str, param: str) -> str:
    """JSON can spell half of a surrogate pair, which no text contains."""
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        raise ApiError(400, f"{param} holds a lone surrogate", param=param) from problem
    return value


def shortened(key: str) -> str:
    """A caller's own word as a message quotes it."""
    return key if len(key) <= 60 else f"{key[:57]}..."


def _message(item: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise ApiError(400, f"{place} must be an object", param=place)
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise ApiError(400, f"{place}.role must be one of {', '.join(_ROLES)}", param=f"{place}.role")
    for key, content in item.items():
        if key not in _KEYS:
            name = f"{place}.{shortened(key)}"
            raise ApiError(400, f"unrecognized parameter: {name}", param=name)
        if key in _EMPTY and content not in _EMPTY[key]:
            raise ApiError(400, f"{place}.{key} is not supported", param=f"{place}.{key}")
    message = {"role": _ROLES[role], "content": _content(item.get("content"), f"{place}.content")}
    for key in ("name", "reasoning_content"):
        if item.get(key) is not None:
            message[key] = _string(item[key], f"{place}.{key}")
    return message


def _content(value: Any, place: str) -> str:
    """A text, or text parts joined."""
    if isinstance(value, list):
        parts = [_part(part, f"{place}[{index}]") for index, part in enumerate(value)]
        return "".join(parts)
    return _string(value, place)


def _part(value: Any, place: str) -> str:
    if not isinstance(value, dict) or value.get("type") != "text":
        raise ApiError(400, f"{place} must be a part of type text", param=place)
    return _string(value.get("text"), f"{place}.text")


def _string(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise ApiError(400, f"{place} must be a text", param=place)
    return check_text(value, place)
