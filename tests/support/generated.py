"""Hypothesis strategies out of attrs classes: any value that the types allow, as files could hold it."""

import functools
import types
import typing
from typing import Any, Literal, get_args, get_origin

import attrs
from hypothesis import strategies as st

NUMBERS = st.integers(-(2**70), 2**70)
PLAIN = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
JSON = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@functools.cache
def instances(cls):
    """Instances of an attrs class, every field drawn from its type."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: values(hints[field.name]) for field in attrs.fields(cls)})


def values(hint):
    """Values of a type of the data classes: what a JSON file can say for it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=8), values(arguments[1]), max_size=3)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is types.UnionType:
        return st.one_of(*map(values, arguments))
    if attrs.has(hint):
        return instances(hint)
    return {str: st.text(max_size=8), int: NUMBERS, bool: st.booleans(), types.NoneType: st.none(), Any: JSON}[hint]
