"""surface/openai: no client can hold a connection by doing nothing, or too little."""

import json
import logging
import socket
import time
from types import SimpleNamespace

import pytest
from pih_surface_openai import connections, reading, sockets
from pih_surface_openai.app import Service
from pih_surface_openai.reading import Intake
from pih_surface_openai.server import HttpServer

from pih_runtime.contracts import Piece, Reply
from tests.support.waiting import PATIENCE, until

SHORT = 0.3
SLACK = 60  # seconds: more than a busy machine adds, less than LONG
LONG = 600
POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


class Endless:
    """An engine whose answers are long and never end."""

    context = 100

    def __init__(self):
        self.cancelled = 0

    def generate(self, _request, deliver):
        for _ in range(100):
            deliver(Piece("x" * 100_000, 1, 0))
        return self.cancel

    def cancel(self):
        self.cancelled += 1


@pytest.fixture
def server(monkeypatch):
    for name in ("HEAD_SECONDS", "IDLE_SECONDS", "LINGER_SECONDS", "STALL_SECONDS"):
        monkeypatch.setattr(connections, name, SHORT)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(reading, "SECONDS", SHORT)
    text = SimpleNamespace(stop_ids=frozenset(), defaults={}, encode=lambda *_: [1])
    listener, failures = sockets.listen("127.0.0.1:0"), []
    service = Service("toy", "pih-x", Intake(1000), Endless(), text, ready=lambda: True)
    started = HttpServer(service, listener, failures.append, print)
    started.route("/health", lambda: Reply(200, "text/plain", b"well"))
    yield SimpleNamespace(address=listener.getsockname(), engine=service.engine, inner=started._server)
    started.stop()
    assert not failures


def opened(server):
    return socket.create_connection(server.address, timeout=PATIENCE)


def rest(connection):
    """All that comes until the other side ends the connection."""
    got = b""
    try:
        while data := connection.recv(1 << 16):
            got += data
    except ConnectionResetError:
        return got
    return got


def heard_well(connection):
    """The one answer of /health, in as many pieces as it comes."""
    got = b""
    while not got.endswith(b"well"):
        got += (data := connection.recv(1000))
        assert data, got


def drip(connection, data, pause=0.05):
    """Send byte by byte until the other side has had enough; fails where it bears that."""
    end = time.monotonic() + SLACK
    connection.setblocking(False)
    while time.monotonic() < end:
        try:
            connection.send(data)
            if connection.recv(1) == b"":
                return
        except BlockingIOError:
            time.sleep(pause)
        except OSError:
            return
    pytest.fail("it was never ended")


@pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_does_not_end_is_ended(server, start):
    with opened(server) as connection:
        connection.sendall(start)
        assert rest(connection) == b""


def test_a_head_that_comes_byte_by_byte_is_ended(server):
    began = time.monotonic()
    with opened(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\na: ")
        drip(connection, b"b")
        assert time.monotonic() - began >= SHORT


@pytest.mark.parametrize("start", [b"", b"G", b"GET /health HTTP/1.1\r\n"])
def test_after_an_answer_idle_and_unfinished_are_ended(server, start):
    with opened(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        heard_well(connection)
        connection.sendall(start)
        assert rest(connection) == b""


def test_a_next_head_that_comes_byte_by_byte_is_ended(server):
    with opened(server) as connection:
        began = time.monotonic()
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        heard_well(connection)
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\na: ")
        drip(connection, b"b")
        assert time.monotonic() - began >= SHORT


def test_a_connection_in_use_is_kept(server):
    """Longer than an idle one. Where this test itself was held up for so long between two requests, it says nothing."""

    def kept():
        last = time.monotonic()
        with opened(server) as connection:
            for _ in range(8):
                asked = time.monotonic()
                try:
                    connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
                    heard_well(connection)
                except (OSError, AssertionError):
                    assert time.monotonic() - last >= SHORT
                    return False
                last = asked
                time.sleep(SHORT / 4)
        return True

    until(kept)


def test_a_slow_body_is_told_and_ended(server):
    with opened(server) as connection:
        connection.sendall(POST + b'content-length: 100\r\n\r\n{"a"')
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("path", "status"), [("GET /health", b"200"), ("GET /nothing", b"404"), ("POST /v1/completions", b"415")]
)
def test_a_body_that_nobody_reads_is_not_waited_for(server, path, status):
    with opened(server) as connection:
        connection.sendall(f"{path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 " + status)
        drip(connection, b"1\r\na\r\n")


@pytest.mark.parametrize("length", [1001, 1 << 62, 1 << 63, 1 << 64])
def test_a_body_said_to_be_too_long_is_refused_at_once(server, monkeypatch, length):
    monkeypatch.setattr(reading, "SECONDS", LONG)
    with opened(server) as connection:
        connection.sendall(POST + f"content-length: {length}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")
        drip(connection, b"x" * 100)


def test_an_answer_that_is_not_taken_is_ended_and_the_engine_told(server):
    with opened(server) as connection:
        content = json.dumps({"model": "toy", "prompt": "a", "stream": True}).encode()
        connection.sendall(POST + f"content-length: {len(content)}\r\n\r\n".encode() + content)
        until(lambda: server.engine.cancelled)
    assert server.engine.cancelled == 1


def test_more_connections_than_the_bound_are_refused_until_one_ends(server, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", LONG)
    held = [opened(server) for _ in range(3)]
    with opened(server) as one_more:
        got = rest(one_more)
    assert got.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in got
    assert "takes no more" in json.loads(got.partition(b"\r\n\r\n")[2])["error"]["message"]
    held.pop().close()
    until(lambda: len(server.inner.server_state.connections) == len(held))
    with opened(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert rest(connection).endswith(b"well")
    for connection in held:
        connection.close()
    until(lambda: not server.inner.server_state.connections)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        POST + b"content-length: 100000000000000000000000\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nzz\r\n\r\n",
    ],
)
def test_bytes_that_are_no_http_end_the_connection_without_a_word_in_the_log(server, caplog, junk):
    with caplog.at_level(logging.ERROR), opened(server) as connection:
        connection.sendall(junk)
        rest(connection)
        drip(connection, b"1\r\na\r\n")
    assert not caplog.records
