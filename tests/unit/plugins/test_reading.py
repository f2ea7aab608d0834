"""surface/openai: bodies, bounded before they cost anything."""

import asyncio
import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pih_surface_openai import reading
from pih_surface_openai.errors import ApiError
from pih_surface_openai.reading import Intake, json_object
from starlette.requests import Request


def request(*chunks, **headers):
    """A POST; None among the chunks: nothing comes any more."""
    left = list(chunks)

    async def receive():
        if left[0] is None:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    known = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Request(
        {"type": "http", "headers": [(name.encode(), value.encode()) for name, value in known.items()]}, receive
    )


async def read(asked, intake):
    async with json_object(asked, intake) as value:
        return value


def refusal(asked, limit=1000):
    intake = Intake(limit)
    with pytest.raises(ApiError) as caught:
        asyncio.run(read(asked, intake))
    assert intake.held == 0
    return caught.value


def test_a_number_without_end_is_refused_in_words_for_clients():
    refused = refusal(request(b'{"seed": ' + b"1" * 5000 + b"}"), limit=10_000)
    assert (refused.status, str(refused)) == (400, "the body is not JSON: a number of 5000 digits is too long")


def test_a_length_above_the_limit_is_refused_before_the_body():
    for length in ("1001", "9223372036854775808", "99999999999999999999"):
        assert refusal(request(None, content_length=length)).status == 413
    assert refusal(request(b"[" * 600, b"[" * 600)).status == 413


def test_a_slow_body_is_ended(monkeypatch):
    monkeypatch.setattr(reading, "SECONDS", 0.1)
    assert refusal(request(b"{", None)).status == 408


@pytest.mark.parametrize(
    "body",
    [
        b'{"\\ud800": 1}',
        b'{"a": "\\uDfFf"}',
        b'{"a": [{"b": ["x\\ud83d"]}]}',
        b'{"a": {"\\udead": 1}}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\\ude00\\ud83d"}',
        "{}".encode("utf-16"),
    ],
)
def test_what_is_no_text_is_refused_wherever_it_stands(body):
    assert refusal(request(body)).status == 400


@given(st.recursive(st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)))
def test_any_text_is_read_as_written(value):
    for escaped in (True, False):
        body = json.dumps({"a": value}, ensure_ascii=escaped).encode()
        assert asyncio.run(read(request(body), Intake(1 << 20))) == {"a": value}


HEAVY = {
    "objects": b'{"a":[' + b"{}," * 1_300_000 + b"{}]}",
    "lists": b'{"a":[' + b"[]," * 1_300_000 + b"[]]}",
    "texts": b'{"a":[' + b'"",' * 1_300_000 + b'""]}',
    "numbers": b'{"a":[' + b"0.1," * 1_000_000 + b"1]}",
    "quotes": b'{"a":' + b'"' * 4_000_000,
    "escapes without an end": b'{"a":"' + b'\\"' * 2_000_000,
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_body_of_countless_values_is_refused_before_they_are_made(name):
    tracemalloc.start()
    began = time.process_time()
    problem = refusal(request(HEAVY[name]), 4 << 20)
    taken, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert problem.status == 400
    assert peak < 20 << 20
    assert taken < 10  # of the processor, while memory is traced: a reader of more than linear time takes hours


def test_marks_in_a_text_are_no_values():
    body = json.dumps({"a": ',[{"' * 500_000}).encode()
    assert len(asyncio.run(read(request(body), Intake(4 << 20)))["a"]) == 2_000_000


def test_long_bodies_share_room_and_short_ones_need_none():
    intake, long, short = Intake(1 << 20), b"[" * (1 << 20), b'{"a": 1}'

    async def ask():
        slow = [asyncio.create_task(read(request(long[:-1], None), intake)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await read(request(long), intake)
        assert caught.value.status == 503
        assert await read(request(short), intake) == {"a": 1}
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(ask())
    assert intake.held == 0


def test_an_error_may_quote_what_no_text_contains():
    assert json.loads(ApiError(400, "no \ud800", param="\udfff").response().body)["error"]["param"] == "\udfff"
