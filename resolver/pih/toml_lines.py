"""Where each key of a TOML file stands, so that an error can name its line.

The standard parser keeps no positions. This scanner reads only what is needed for them, of a text that
the standard parser has already accepted: headers, keys, and where each value ends.
"""

from __future__ import annotations

from pih.structure import Path

_DOTS = 200
_BARE_END = frozenset(" \t=.]#\n")


def too_deep(text: str) -> bool:
    """Whether a line could hold a key of so many parts that the standard parser would take hours over it."""
    return any(line.count(".") > _DOTS for line in text.split("\n"))


def key_lines(text: str) -> dict[Path, int]:
    """Line (from 1) of every table header and key; of arrays of tables with the index in the path."""
    text = text.replace("\r\n", "\n")
    lines: dict[Path, int] = {}
    arrays: dict[Path, int] = {}
    table: Path = ()
    at, line, counted = 0, 1, 0
    while (at := _skip_blank(text, at)) < len(text):
        line, counted = line + text.count("\n", counted, at), at
        if text[at] == "[":
            double = text.startswith("[[", at)
            key, at = _key(text, at + (2 if double else 1))
            table = _table(key, arrays, double)
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], line)
            at = text.find("\n", at)
            at = len(text) if at < 0 else at
        else:
            key, at = _key(text, at)
            for depth in range(1, len(key) + 1):
                lines.setdefault((*table, *key[:depth]), line)
            at = _skip_value(text, text.index("=", at) + 1)
    return lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of the longest part of `path` that the file has; 1 where it has none."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in lines:
            return lines[path[:depth]]
    return 1


def _table(key: tuple[str, ...], arrays: dict[Path, int], double: bool) -> Path:
    path: Path = ()
    for depth, part in enumerate(key):
        path = (*path, part)
        if double and depth == len(key) - 1:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
    return path


def _skip_blank(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text[at] in " \t\n":
            at += 1
        else:
            break
    return at


def _key(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """A dotted key from `at`; returns its parts and where the scan stands after it."""
    parts: list[str] = []
    while True:
        while text[at] in " \t":
            at += 1
        if text[at] in "\"'":
            end = _string_end(text, at)
            parts.append(_unquote(text[at:end]))
        else:
            end = at
            while text[end] not in _BARE_END:
                end += 1
            parts.append(text[at:end])
        at = end
        while text[at] in " \t":
            at += 1
        if text[at] != ".":
            return tuple(parts), at
        at += 1


def _unquote(quoted: str) -> str:
    if quoted[0] == "'" or "\\" not in quoted:
        return quoted[1:-1]
    import tomllib  # only for the rare quoted key with escapes

    return next(iter(tomllib.loads(f"{quoted} = 0")))


def _string_end(text: str, at: int) -> int:
    """The end of the string that starts at `at`, of any of the four kinds."""
    quote = text[at]
    mark = quote * 3 if text.startswith(quote * 3, at) else quote
    at += len(mark)
    while not text.startswith(mark, at):
        at += 2 if text[at] == "\\" and quote == '"' else 1
    at += len(mark)
    while len(mark) == 3 and at < len(text) and text[at] == quote:
        at += 1  # up to two quotes may stand before the closing three
    return at


def _skip_value(text: str, at: int) -> int:
    """The end of the line on which the value ends."""
    depth = 0
    while at < len(text):
        sign = text[at]
        if sign in "\"'":
            at = _string_end(text, at)
            continue
        if sign == "#":
            at = text.find("\n", at)
            at = len(text) if at < 0 else at
            continue
        if sign == "\n" and depth == 0:
            return at
        depth += (sign in "[{") - (sign in "]}")
        at += 1
    return at
