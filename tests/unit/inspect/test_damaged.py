"""Locks that hold their shape and no sense: an answer or a PihError, nothing else."""

import json

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih import profile
from pih.inspect import bundle, causes, explain, moves, overview, report, why
from pih.inspect.bundle import Contents
from pih.inspect.opened import Opened
from pih_runtime.errors import LockError, PihError
from tests.support.shipped import LOCK, PROFILE, ROOT
from tests.unit.inspect.test_why import FILES

VALUES = st.sampled_from(
    ["", "pih", "weights", "model/llama", "backend/cpu", " → ", "x.toml:1 a.b = 1", "\0", "ü" * 99]
)


def texts(data, path=()):
    """Where strings lie in a lock."""
    if isinstance(data, dict):
        return [found for key, value in data.items() for found in texts(value, (*path, key))]
    if isinstance(data, list | tuple):
        return [found for index, value in enumerate(data) for found in texts(value, (*path, index))]
    if attrs.has(type(data)):
        return texts({field.name: getattr(data, field.name) for field in attrs.fields(type(data))}, path)
    return [path] if isinstance(data, str) else []


def with_text(data, path, text):
    if not path:
        return text
    key, *rest = path
    if isinstance(data, dict):
        return data | {key: with_text(data[key], rest, text)}
    if isinstance(data, tuple):
        return (*data[:key], with_text(data[key], rest, text), *data[key + 1 :])
    if isinstance(data, list):
        return [*data[:key], with_text(data[key], rest, text), *data[key + 1 :]]
    return attrs.evolve(data, **{key: with_text(getattr(data, key), rest, text)})


PLACES = [place for place in texts(LOCK) if place[0] not in ("build", "schema")]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=8))
def test_any_text_in_any_place(changes):
    lock = LOCK
    for place, text in changes:
        lock = with_text(lock, place, text)
    held = Opened(Contents("x", "", "", "", (bundle.Layer("app", "", 1, 1),), tuple(FILES)), lock)
    intent = profile.load(PROFILE)
    try:
        graph = causes.of_contents(causes.of_lock(lock), held.contents)
        for key in graph.things:
            why.chains(graph, key)
        why.answers(graph, "libstdc++.so.6")
        json.dumps(overview.as_json(held))
        report.page(held)
        json.dumps(explain.as_json(explain.explanation(lock, intent, ROOT)))
        moves.moves(LOCK, lock, lambda *_: "", frozenset())
    except PihError:
        return


@pytest.mark.parametrize("model", [{}, {"plugin": "model/llama"}, {"plugin": "p", "weights": "x"}, {"weights": {}}])
def test_a_lock_without_a_model_is_an_error_of_the_lock(model):
    with pytest.raises(LockError, match="names no plugin or no weights"):
        causes.of_lock(attrs.evolve(LOCK, model=model))


def test_a_lock_without_reasons_is_an_error_of_the_lock():
    bare = attrs.evolve(LOCK, artifacts=tuple(attrs.evolve(item, reasons=()) for item in LOCK.artifacts))
    with pytest.raises(LockError, match="no reason for artifact"):
        explain.explanation(bare, profile.load(PROFILE), ROOT)
    with pytest.raises(LockError, match="no reason for artifact numpy"):
        why.answers(causes.of_lock(bare), "numpy")
