"""JSON Schema and a reference page out of attrs classes, so that what is documented is what is read."""

from __future__ import annotations

import json
import types
import typing
from typing import Any, Literal, get_args, get_origin

import attrs

from pih.structure import show, unstructure

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PRIMITIVES = {str: "string", int: "integer", bool: "boolean", float: "number"}
_WORDS = {str: "string", int: "whole number", bool: "true or false", float: "number"}


def json_schema(cls: type, title: str) -> str:
    """The schema of a document that `structure` reads as a `cls`."""
    definitions: dict[str, Any] = {}
    body = _class(cls, definitions)
    schema = {"$schema": _DRAFT, "title": title, **body}
    if definitions:
        schema["$defs"] = dict(sorted(definitions.items()))
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _class(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    properties = {field.name: _field(field, hints[field.name], definitions) for field in attrs.fields(cls)}
    required = [field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING]
    schema: dict[str, Any] = {"type": "object"}
    if cls.__doc__:
        schema["description"] = " ".join(cls.__doc__.split())
    schema["properties"] = properties
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _field(field: attrs.Attribute[Any], hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = dict(_type(hint, definitions))
    notes = field.metadata
    if "doc" in notes:
        schema["description"] = notes["doc"]
    if "pattern" in notes:
        schema["pattern"] = f"^({notes['pattern']})$"
    if "items" in notes:
        schema["items"]["pattern"] = f"^({notes['items']})$"
    if "kinds" in notes:
        schema["pattern"] = f"^({'|'.join(notes['kinds'])}):"
    for key in ("minimum", "maximum"):
        if key in notes:
            schema[key] = notes[key]
    if "example" in notes:
        schema["examples"] = [notes["example"]]
    if field.default not in (attrs.NOTHING, "", ()):
        schema["default"] = unstructure(field.default)
    return schema


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _PRIMITIVES:
        return {"type": _PRIMITIVES[hint]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _type(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if origin is types.UnionType:
        return {"anyOf": [_type(argument, definitions) for argument in arguments]}
    if hint is types.NoneType:
        return {"type": "null"}
    if hint.__name__ not in definitions:
        definitions[hint.__name__] = {}
        definitions[hint.__name__] = _class(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def table_page(cls: type) -> str:
    """Markdown: one section for each table of a TOML document, one row for each key."""
    hints = typing.get_type_hints(cls)
    parts = []
    for table in attrs.fields(cls):
        section, title = hints[table.name], f"[{table.name}]"
        if get_origin(section) is tuple:
            section, title = get_args(section)[0], f"[{title}]"
        parts.append(f"\n## {title}\n\n{(section.__doc__ or '').strip()}\n\n")
        parts.append("| key | value | default | what it is |\n|---|---|---|---|\n")
        types_ = typing.get_type_hints(section)
        parts += [_row(field, types_[field.name]) for field in attrs.fields(section)]
    return "".join(parts)


def _row(field: attrs.Attribute[Any], hint: Any) -> str:
    default = (
        "needed"
        if field.default is attrs.NOTHING
        else "none"
        if field.default in ("", ())
        else f"`{show(field.default)}`"
    )
    return f"| `{field.name}` | {_value(field, hint)} | {default} | {field.metadata.get('doc', '')} |\n"


def _value(field: attrs.Attribute[Any], hint: Any) -> str:
    notes = field.metadata
    if get_origin(hint) is Literal:
        return ", ".join(f"`{show(option)}`" for option in get_args(hint))
    if "minimum" in notes:
        return f"{notes['minimum']} to {notes['maximum']}"
    if "kinds" in notes:
        return f"source, e.g. `{show(notes['example'])}`"
    if "items" in notes:
        return f"list, e.g. `[{show(notes['example'][0])}]`"
    if "example" in notes:
        return f"like `{show(notes['example'])}`"
    return _WORDS[hint]
