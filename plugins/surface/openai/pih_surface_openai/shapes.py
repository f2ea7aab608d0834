"""The JSON of answers: chat and plain completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pih_runtime.contracts import Piece

Choice = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """opening: choices sent before any text. part and whole: a choice from text and finish reason."""

    prefix: str
    whole_object: str
    chunk_object: str
    opening: tuple[Choice, ...]
    part: Callable[[str, str | None], Choice]
    whole: Callable[[str, str | None], Choice]


def usage(prompt: int, last: Piece) -> dict[str, Any]:
    """Token counts of one request."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": last.tokens,
        "total_tokens": prompt + last.tokens,
        "prompt_tokens_details": {"cached_tokens": last.cached},
    }


def _delta(content: dict[str, str], finish: str | None) -> Choice:
    return {"index": 0, "delta": content, "logprobs": None, "finish_reason": finish}


def _chat_part(text: str, finish: str | None) -> Choice:
    return _delta({"content": text} if text else {}, finish)


def _chat_whole(text: str, finish: str | None) -> Choice:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}


def _plain(text: str, finish: str | None) -> Choice:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


CHAT = Shape(
    prefix="chatcmpl-",
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    opening=(_delta({"role": "assistant", "content": ""}, None),),
    part=_chat_part,
    whole=_chat_whole,
)
COMPLETION = Shape(
    prefix="cmpl-",
    whole_object="text_completion",
    chunk_object="text_completion",
    opening=(),
    part=_plain,
    whole=_plain,
)
