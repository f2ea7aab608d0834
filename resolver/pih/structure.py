"""Strict reading of parsed TOML or JSON into attrs classes, through cattrs.

Why its own module: profiles, plugin.toml files, pins and locks are all untrusted input and are all refused in
the same words: which key, what is wrong, what is allowed, which spelling is near. Nothing is coerced:
`"8"` is not a number and `1` is not a truth value.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)

T = TypeVar("T")
Path = tuple[str | int, ...]

_TOLD = 10  # problems of one table or list that are looked at: a file may have as many as it likes
_SHOWN = 100  # characters of a value or key in a message
_NAMES = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    dict: "a table",
    list: "a list",
}


@attrs.frozen
class Problem:
    """One thing that is wrong with the data: where in it, what, and what to do."""

    path: Path
    what: str
    fix: str = ""


class StructureError(ValueError):
    """The data does not have the shape of its class. `problems` is not empty; readers add file and line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{dotted(problem.path)}: {problem.what}" for problem in problems))
        self.problems = problems


class RefusedError(ValueError):
    """Raised by a validator of one attribute: the type is right, the value is not."""

    def __init__(self, key: str, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.key = key
        self.what = what
        self.fix = fix


class _HookError(ValueError):
    """Raised by a hook below; its place comes from the notes that cattrs adds on the way up."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def structure(data: object, cls: type[T]) -> T:
    """`data` as a `cls`; raises StructureError naming every problem."""
    try:
        return _CONVERTER.structure(data, cls)
    except (ClassValidationError, IterableValidationError, _HookError, RefusedError) as failure:
        raise StructureError(tuple(_problems(failure, ()))) from failure


def unstructure(value: object) -> Any:
    """The plain data of attrs instances, keys in the order of the classes; lists and tables inside are copies."""
    kind: Any = type(value)
    if attrs.has(kind):
        return {field.name: unstructure(getattr(value, field.name)) for field in attrs.fields(kind)}
    if isinstance(value, list | tuple):
        return [unstructure(item) for item in value]
    if isinstance(value, dict):
        return {key: unstructure(item) for key, item in value.items()}
    return value


def dotted(path: Path) -> str:
    """`model.weights`, `report.kernel[3].op`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" if text else _cut(part)
    return text or "the file"


def nearest(word: str, known: Iterable[str], least: float = 0.5) -> str:
    """The known word nearest to `word`, or '' (for what is no word at all too: comparing takes memory).

    least: how alike they must be, 0 to 1.
    """
    if len(word) > _SHOWN:
        return ""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=least)
    return found[0] if found else ""


def listed(words: Iterable[object]) -> str:
    """`"a", "b" or "c"`, as a message shows allowed values."""
    shown = [show(word) for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def show(value: object) -> str:
    """A value as its file writes it, cut where it is long."""
    if isinstance(value, tuple):
        text = f"[{', '.join(show(item) for item in value)}]"
    elif isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, list | dict):  # nested as deep and long as its file likes
        text = _NAMES[type(value)]
    else:
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def choice_problem(value: object, allowed: Iterable[object]) -> tuple[str, str]:
    """(what, fix) for a value that is not one of the allowed ones."""
    options = list(allowed)
    near = nearest(value, [item for item in options if isinstance(item, str)]) if isinstance(value, str) else ""
    meant = f'did you mean "{near}"? ' if near else ""
    return f"{show(value)} is not allowed", f"{meant}allowed: {listed(options)}"


def _problems(failure: BaseException, path: Path, form: str = "") -> Iterable[Problem]:
    """Flatten cattrs' tree of exceptions; the path lies in the notes on the way down.

    form: what to write there, as the attribute's metadata has it under `form`; '' where it has none.
    """
    if isinstance(failure, ForbiddenExtraKeysError):
        known = [field.name for field in attrs.fields(failure.cl)]
        for key in sorted(failure.extra_fields)[:_TOLD]:
            near = nearest(key, known)
            meant = f'did you mean "{near}"? ' if near else ""
            yield Problem((*path, key), "unknown key", f"{meant}known keys: {', '.join(known)}")
    elif isinstance(failure, ClassValidationError):
        fields = attrs.fields_dict(failure.cl)
        for inner in failure.exceptions:
            step = _step(inner)
            form = "".join(fields[str(name)].metadata.get("form", "") for name in step)
            yield from _problems(inner, (*path, *step), form)
    elif isinstance(failure, IterableValidationError):
        for inner in failure.exceptions:
            yield from _problems(inner, (*path, *_step(inner)), form)
    elif isinstance(failure, RefusedError):
        yield Problem((*path, failure.key), failure.what, failure.fix)
    elif isinstance(failure, _HookError):
        yield Problem(path, failure.what, form or failure.fix)
    elif isinstance(failure, KeyError):
        yield Problem(path, "missing", f"add {path[-1]}")
    else:
        yield Problem(path, str(failure))


def _step(failure: BaseException) -> Path:
    for note in getattr(failure, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return (note.name,)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()


def _expect(value: object, kind: type) -> None:
    if type(value) is not kind:
        raise _HookError(f"{show(value)} is not {_NAMES[kind]}", f"give {_NAMES[kind]}")


def _primitive(value: object, kind: type[T]) -> T:
    _expect(value, kind)
    return typing.cast("T", value)


def _number(value: object, _: type[float]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _HookError(f"{show(value)} is not a number", "give a number")
    return float(value)


def _literal(value: object, kind: Any) -> object:
    if not any(value == option and type(value) is type(option) for option in get_args(kind)):
        raise _HookError(*choice_problem(value, get_args(kind)))
    return value


def _list_hook(kind: Any, converter: cattrs.Converter) -> Callable[[object, Any], tuple[Any, ...]]:
    item = get_args(kind)[0]

    def hook(value: object, _: Any) -> tuple[Any, ...]:
        _expect(value, list)
        failures, result = [], []
        for index, entry in enumerate(typing.cast("list[Any]", value)):
            try:
                result.append(converter.structure(entry, item))
            except Exception as failure:  # noqa: BLE001 - collected, as cattrs does, but not each of a million
                failure.add_note(IterableValidationNote(f"at {index}", index, item))
                failures.append(failure)
                if len(failures) == _TOLD:
                    break
        if failures:
            raise IterableValidationError("bad values", failures, kind)
        return tuple(result)

    return hook


def _class_hook(kind: Any, converter: cattrs.Converter) -> Callable[[object, Any], Any]:
    build = cattrs.gen.make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

    def hook(value: object, cls: Any) -> Any:
        _expect(value, dict)
        return build(value, cls)  # type: ignore[arg-type]

    return hook


def _dict_hook(kind: Any, converter: cattrs.Converter) -> Callable[[object, Any], dict[str, Any]]:
    item = get_args(kind)[1]

    def hook(value: object, _: Any) -> dict[str, Any]:
        _expect(value, dict)
        failures, result = [], {}
        for key, entry in typing.cast("dict[str, Any]", value).items():
            try:
                result[key] = entry if item is Any else converter.structure(entry, item)
            except Exception as failure:  # noqa: BLE001 - collected, as cattrs does for lists
                failure.add_note(AttributeValidationNote(f"at {key}", key, item))
                failures.append(failure)
                if len(failures) == _TOLD:
                    break
        if failures:
            raise IterableValidationError("bad values", failures, kind)
        return result

    return hook


def _is(origin: object) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) is origin


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and attrs.has(kind)


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _primitive)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(_is(Literal), _literal)
    converter.register_structure_hook_factory(_is(tuple), lambda kind: _list_hook(kind, converter))
    converter.register_structure_hook_factory(_is(dict), lambda kind: _dict_hook(kind, converter))
    converter.register_structure_hook_factory(_is_class, lambda kind: _class_hook(kind, converter))
    return converter


_CONVERTER = _make_converter()
