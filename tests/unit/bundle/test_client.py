"""Talking to a worker: over a unix socket, in pieces, with its errors in words."""

import json
import socket
import threading
from contextlib import contextmanager

import pytest

from pih.bundle import client
from pih_runtime.errors import WorkerError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text):
    return event({"choices": [{"delta": {"content": text}}]})


@contextmanager
def serving(tmp_path, *answers):
    """A server that gives each connection the next answer and keeps what it was asked."""
    asked = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def serve():
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    request = connection.recv(1 << 16)
                    while request.startswith(b"POST") and not request.endswith(b"}"):
                        request += connection.recv(1 << 16)
                    asked.append(request)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"unix:{tmp_path / 's'}", asked
        finally:
            thread.join(10)


def test_an_answer_comes_in_pieces(tmp_path):
    stream = event({"choices": [{"delta": {"role": "assistant"}}]}) + b": comment\n\n" + delta("The ") + delta("sky")
    stream += event({"choices": [], "usage": {}}) + event(b"[DONE]")
    with serving(tmp_path, HEAD + stream) as (address, asked):
        assert list(client.chat(address, {"messages": []})) == ["The ", "sky"]
    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions ")
    assert json.loads(body) == {"messages": [], "stream": True}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'HTTP/1.1 400 Bad\r\nContent-Length: 31\r\n\r\n{"error":{"message":"too long"}}'[:-1] + b"}", "too long"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nsoup", "500: soup"),
        (HEAD + delta("The "), "broke off"),
        (HEAD + event({"error": {"message": "out of pages"}}), "out of pages"),
        (b"", "broke off"),
        (b"gibberish\r\n\r\n", "broke off"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path, answer, message):
    with serving(tmp_path, answer) as (address, _), pytest.raises(WorkerError, match=message) as failure:
        list(client.chat(address, {}))
    assert failure.value.exit_code == 9


def test_waiting_until_it_is_ready(tmp_path):
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ready = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving(tmp_path, busy, b"", ready) as (address, asked):
        client.wait_ready(address, lambda: True, 10)
    assert len(asked) == 3
    assert asked[0].startswith(b"GET /health/ready ")


def test_a_worker_that_ends_before(tmp_path):
    with pytest.raises(WorkerError, match="ended before"):
        client.wait_ready(f"unix:{tmp_path / 'nothing'}", lambda: False, 10)


def test_a_worker_that_takes_too_long(tmp_path):
    with pytest.raises(WorkerError, match="within 0 s"):
        client.wait_ready(f"unix:{tmp_path / 'nothing'}", lambda: True, 0.1)


@pytest.mark.parametrize(("address", "host", "port"), [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:8000", "::1", 8000)])
def test_addresses(address, host, port):
    connection = client.connect(address)
    assert (connection.host, connection.port) == (host, port)
