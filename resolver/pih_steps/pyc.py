"""Python source to `.pyc`, with bytes that depend on the source alone.

Unchecked-hash files (PEP 552): no time inside and no look at the source when imported.
`marshal` also writes what the process did before: it flags an object as shared when anything
else holds it, and a one-character string as interned when anything interned it. `_canonical`
takes both out.
"""

from __future__ import annotations

import importlib.util
import marshal
import struct
from dataclasses import dataclass

from pih_runtime.errors import BuildError

_UNCHECKED_HASH = 1
_SHARED = 0x80
# Sizes of what follows a type byte: fixed, or counted by a 1- or 4-byte length (of bytes, or of objects).
_FIXED = {ord(c): 0 for c in "0NFTS."} | {ord("i"): 4, ord("I"): 8, ord("g"): 8, ord("y"): 16}
_BYTES_LONG = frozenset(b"sutaA")
_BYTES_SHORT = frozenset(b"zZ")
_OBJECTS_LONG = frozenset(b"([<>")
# Type bytes of interned strings, and of the same strings not interned.
_NOT_INTERNED = {ord("Z"): ord("z"), ord("A"): ord("a"), ord("t"): ord("u")}
# A code object in 3.11: five integers, eight objects (code … qualname), one integer, two objects.
_CODE = (5, 8, 1, 2)


def compile_module(source: bytes, path: str) -> bytes:
    """The `.pyc` of `source`, without asserts and docstrings; `path` is what tracebacks show."""
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=2)
    except (SyntaxError, ValueError) as problem:
        raise BuildError(f"cannot be compiled: {problem}", where=path) from problem
    header = importlib.util.MAGIC_NUMBER + struct.pack("<I", _UNCHECKED_HASH) + importlib.util.source_hash(source)
    return header + _canonical(marshal.dumps(code))


def _canonical(data: bytes) -> bytes:
    """Clear the sharing flag of objects that are not referred to, number the rest anew; intern no single character."""
    found = _Found([], [], [])
    if _walk(data, 0, found) != len(data):
        raise ValueError("marshal data was not understood")
    used = sorted({number for _, number in found.uses})
    renumbered = {number: index for index, number in enumerate(used)}
    out = bytearray(data)
    for number, position in enumerate(found.flags):
        if number not in renumbered:
            out[position] &= ~_SHARED & 0xFF
    for position, number in found.uses:
        struct.pack_into("<i", out, position, renumbered[number])
    for position in found.characters:
        out[position] = out[position] & _SHARED | _NOT_INTERNED[out[position] & ~_SHARED]
    return bytes(out)


@dataclass(frozen=True, slots=True)
class _Found:
    """Positions: of flagged type bytes (their order is the reference number), references, one-character strings."""

    flags: list[int]
    uses: list[tuple[int, int]]
    characters: list[int]


def _walk(data: bytes, at: int, found: _Found) -> int:
    """Walk the object at `at`; returns where it ends."""
    kind = data[at] & ~_SHARED
    if data[at] & _SHARED:
        found.flags.append(at)
    if kind in _NOT_INTERNED and _is_character(data, at):
        found.characters.append(at)
    at += 1
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind == ord("r"):
        found.uses.append((at, _int(data, at)))
        return at + 4
    if kind == ord("l"):
        return at + 4 + 2 * abs(_int(data, at))
    if kind in _BYTES_LONG:
        return at + 4 + _int(data, at)
    if kind in _BYTES_SHORT:
        return at + 1 + data[at]
    if kind == ord(")"):
        return _walk_many(data, at + 1, data[at], found)
    if kind in _OBJECTS_LONG:
        return _walk_many(data, at + 4, _int(data, at), found)
    if kind == ord("c"):
        integers, objects, more_integers, more_objects = _CODE
        at = _walk_many(data, at + 4 * integers, objects, found)
        return _walk_many(data, at + 4 * more_integers, more_objects, found)
    raise ValueError(f"marshal type {chr(kind)!r} is not known")


def _walk_many(data: bytes, at: int, count: int, found: _Found) -> int:
    for _ in range(count):
        at = _walk(data, at, found)
    return at


def _is_character(data: bytes, at: int) -> bool:
    short = data[at] & ~_SHARED in _BYTES_SHORT
    text = data[at + 2 : at + 2 + data[at + 1]] if short else data[at + 5 : at + 5 + _int(data, at + 1)]
    return len(text.decode("utf-8", "surrogatepass")) <= 1


def _int(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", data, at)[0])
