"""The model's chat template, rendered with what templates may rely on elsewhere, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pih_runtime.errors import WorkerError

RESERVED = frozenset({"messages", "tools", "documents", "raise_exception", "strftime_now"})


class ChatTemplate:
    """variables: bos_token and the like. add_generation_prompt is on unless options say otherwise."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._variables = dict(variables)
        try:
            self._template = environment.from_string(source)
        except TemplateError as problem:
            raise WorkerError(f"not a chat template: {problem}", where="chat_template.jinja") from problem

    def render(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        """The prompt's text; ValueError where the template or its use of the messages fails."""
        clash = sorted(RESERVED & options.keys())
        if clash:
            raise ValueError(f"the template variable {clash[0]!r} is not a caller's to set")
        values = {**self._variables, "add_generation_prompt": True, **options, "messages": list(messages)}
        try:
            return self._template.render(tools=None, documents=None, **values)
        except TemplateError as problem:
            raise ValueError(f"the chat template refuses: {problem.message}") from problem
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as problem:
            raise ValueError(f"the chat template fails on these messages: {problem}") from problem


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON, unlike jinja2's own filter, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
