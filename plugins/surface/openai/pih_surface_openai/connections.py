"""Connections of bounded number, none of which a slow client can hold: each state of one has an end.

A head has HEAD_SECONDS, an idle connection IDLE_SECONDS, a body its own limit where it is read. A body that was
answered before its end has LINGER_SECONDS, a client that does not take its answer STALL_SECONDS.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pih_surface_openai.errors import ApiError

HEAD_SECONDS = 10  # from the connection, or from a next head's first byte, to the head's end
IDLE_SECONDS = 5
LINGER_SECONDS = 2  # for the rest of a body that has its answer, and for the last bytes of a closed connection
STALL_SECONDS = 30  # for a client to take what fills its buffers
HEAD_BYTES = 16 << 10
# Below the 1024 files that a process may have open where nobody raises it.
MOST_CONNECTIONS = 512


class Connection(H11Protocol):
    """uvicorn's protocol with a deadline for what it waits for without one."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waits_for = ""  # "head", "rest" of a body, or nothing that has a deadline here
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve it, or refuse it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(_refusal())
            self._close()
        else:
            self._wait_for("head")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget all deadlines."""
        self._wait_for("")
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes end a wait only by what they complete, not by coming."""
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        """Take in what came; then see what is waited for now."""
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        """The answer is written; the rest of the body, if there is one, is of no use."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The client takes less than it is given."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It takes it again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def timeout_keep_alive_handler(self) -> None:
        """Idle for too long."""
        super().timeout_keep_alive_handler()
        self._close()

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP: say so where an answer may still start."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        if self.cycle is not None:  # whoever works on an answer is told that nobody hears it
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._close()

    def _look(self) -> None:
        if self.transport.is_closing():
            self._wait_for("")
            self._close()
        elif self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._wait_for("head")
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._wait_for("rest")
        else:
            self._wait_for("")

    def _wait_for(self, what: str) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if what:
            seconds = {"head": HEAD_SECONDS, "rest": LINGER_SECONDS}[what]
            self._deadline = self.loop.call_later(seconds, self._close)

    def _close(self) -> None:
        """Send what is written already, to a client that takes it."""
        self.transport.close()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


def _refusal() -> bytes:
    body = ApiError(503, f"{MOST_CONNECTIONS} connections are open; this worker takes no more").body()
    lines = (
        "HTTP/1.1 503 Service Unavailable",
        "connection: close",
        "retry-after: 1",
        "content-type: application/json",
        f"content-length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
