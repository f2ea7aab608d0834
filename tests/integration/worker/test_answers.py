"""What clients get: right answers over real HTTP, alone and together."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from tests.integration.worker.toy_bundle import CHOICES, TEMPLATE, tokenizer
from tests.support.waiting import PATIENCE, until
from tests.unit.plugins.toy_backend import answer

TOY = tokenizer()
HELLO = [{"role": "user", "content": "hello there"}]


def plain_ids(text):
    return TOY.encode(text, add_special_tokens=False).ids


def chat_ids(text):
    assert "add_generation_prompt" in TEMPLATE
    return plain_ids(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")


def said(prompt, count, **more):
    return TOY.decode(answer(prompt, count, CHOICES, **more))


def test_models(shared):
    client = shared.client()
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "pih"
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        client.models.retrieve("other")


def test_a_chat_answer_whole(shared):
    got = shared.client().chat.completions.create(model="toy", messages=HELLO, max_tokens=12)
    assert got.object == "chat.completion"
    assert got.choices[0].message.content == said(chat_ids("hello there"), 12)
    assert got.choices[0].message.role == "assistant"
    assert got.choices[0].finish_reason == "length"
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (len(chat_ids("hello there")), 12)
    assert got.usage.total_tokens == got.usage.prompt_tokens + 12


def test_a_chat_answer_streamed_is_the_same(shared):
    chunks = list(
        shared.client().chat.completions.create(
            model="toy", messages=HELLO, max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == said(chat_ids("hello there"), 12)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_raw_stream_is_server_sent_events_that_end_with_done(shared):
    body = {"model": "toy", "prompt": "a", "max_tokens": 3, "stream": True}
    got = shared.post("/v1/completions", json=body)
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = got.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == said(plain_ids("a"), 3)
    assert all("usage" not in chunk for chunk in chunks)


def test_a_plain_completion_of_text_and_of_ids(shared):
    client = shared.client()
    of_text = client.completions.create(model="toy", prompt="to be", max_tokens=9)
    of_ids = client.completions.create(model="toy", prompt=plain_ids("to be"), max_tokens=9)
    assert of_text.choices[0].text == of_ids.choices[0].text == said(plain_ids("to be"), 9)


def test_an_equal_prompt_is_found_in_the_cache(shared):
    client = shared.client()
    prompt = "the same long prompt " * 5
    first = client.completions.create(model="toy", prompt=prompt, max_tokens=2)
    second = client.completions.create(model="toy", prompt=prompt, max_tokens=2)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == (len(plain_ids(prompt)) - 1) // 16 * 16
    assert first.choices[0].text == second.choices[0].text


def test_a_seed_fixes_a_sampled_answer(shared):
    client = shared.client()

    def ask(**more):
        got = client.chat.completions.create(model="toy", messages=HELLO, max_tokens=20, temperature=1, **more)
        return got.choices[0].message.content

    assert ask(seed=5) == ask(seed=5)
    assert ask(seed=5) != ask(seed=6)
    assert ask() != ask()


def test_a_stop_string_ends_the_answer_before_it(shared):
    whole = said(plain_ids("x"), 60)
    stop = whole[20:23]
    client = shared.client()
    got = client.completions.create(model="toy", prompt="x", max_tokens=60, stop=[stop, "never said"])
    assert got.choices[0].text == whole[: whole.index(stop)]
    assert got.choices[0].finish_reason == "stop"
    chunks = client.completions.create(model="toy", prompt="x", max_tokens=60, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole[: whole.index(stop)]


def test_many_clients_at_once_get_what_they_would_get_alone(shared):
    client = shared.client()

    def ask(n):
        prompt = f"prompt {n % 7} " * (1 + n % 9)
        got = client.completions.create(model="toy", prompt=prompt, max_tokens=10 + n % 30)
        return got.choices[0].text, said(plain_ids(prompt), 10 + n % 30)

    with ThreadPoolExecutor(24) as pool:
        results = list(pool.map(ask, range(72)))
    assert all(got == wanted for got, wanted in results)
    until(lambda: not shared.pages_in_use())


MALFORMED = {
    "not JSON": b"{",
    "empty": b"",
    "array": b"[]",
    "deep": b"[" * 200_000,
    "invalid UTF-8": b'{"model": "\xff"}',
    "NaN": b'{"temperature": NaN}',
    "a number of many digits": b'{"seed": ' + b"9" * 5000 + b"}",
    "lone surrogate": b'{"model": "toy", "prompt": "\\ud800"}',
    "lone surrogate as a key": b'{"model": "toy", "prompt": "a", "\\ud800": 1}',
    "lone surrogate as the model": b'{"model": "\\udc00", "prompt": "a", "messages": []}',
    "lone surrogate deep down": b'{"metadata": {"a": [{"\\ud800": 1}]}}',
    "surrogate as bytes": b'{"model": "\xed\xa0\x80"}',
    "null": b"null",
}


@pytest.mark.parametrize("body", MALFORMED)
def test_a_malformed_body_is_a_clear_refusal(shared, body):
    for path in ("/v1/completions", "/v1/chat/completions"):
        got = shared.post(path, content=MALFORMED[body], headers={"content-type": "application/json"})
        assert got.status_code == 400
        error = got.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"]


def test_a_path_that_is_no_text_is_answered_too(shared):
    assert shared.get("/v1/models/%ed%a0%80").status_code == 404
    assert shared.get("/%ff%00").status_code == 404
    assert not [line for line in shared.lines if "Traceback" in line]


def test_refusals_by_status(shared):
    json_type = {"content-type": "application/json"}
    assert shared.post("/v1/completions", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert shared.post("/v1/completions", content=b" " * (5 << 20), headers=json_type).status_code == 413
    assert shared.get("/v1/completions").status_code == 405
    assert shared.get("/v1/embeddings").json()["error"]["message"] == "there is nothing at /v1/embeddings"
    unknown = shared.post("/v1/completions", json={"model": "gpt", "prompt": "a"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    long = shared.post("/v1/completions", json={"model": "toy", "prompt": "a " * 600})
    assert long.status_code == 400
    assert "the context is 256, answer included" in long.json()["error"]["message"]
    ids = shared.post("/v1/completions", json={"model": "toy", "prompt": [400]})
    assert (ids.status_code, "outside 0..399" in ids.text) == (400, True)


def test_an_unsupported_parameter_is_named(shared):
    with pytest.raises(openai.BadRequestError, match="logprobs") as caught:
        shared.client().chat.completions.create(model="toy", messages=HELLO, logprobs=True)
    assert caught.value.param == "logprobs"


def test_bytes_that_are_no_http_are_refused(shared):
    host, port = shared.url.removeprefix("http://").split(":")
    for junk in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 100_000 + b"\r\n"):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(junk + b"\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert shared.get("/health/live").status_code == 200


def test_health_and_metrics(shared):
    assert (shared.get("/health/live").status_code, shared.get("/health/ready").text) == (200, "ready\n")
    page = shared.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'pih_build_info{profile="toy",model="toy"' in page.text
    assert shared.metrics()["pih_ready"] == 1


def test_a_client_without_keep_alive_and_one_with(shared):
    with httpx.Client(base_url=shared.url) as client:
        for _ in range(3):
            assert client.get("/health/live").status_code == 200
    assert httpx.get(shared.url + "/health/live", headers={"connection": "close"}).status_code == 200
