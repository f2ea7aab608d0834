"""What a client is told when a request cannot be served, in the form that OpenAI's clients read."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response


class ApiError(Exception):
    """An answer of status 4xx or 5xx. param: the request's key at fault."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> bytes:
        """The error object as JSON; in ASCII, since a message may quote what no encoding can write."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error: dict[str, Any] = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}, separators=(",", ":")).encode()

    def response(self) -> Response:
        """The whole answer; a client may try again after a 503."""
        headers = {"retry-after": "1"} if self.status == 503 else None
        return Response(self.body(), status_code=self.status, headers=headers, media_type="application/json")
