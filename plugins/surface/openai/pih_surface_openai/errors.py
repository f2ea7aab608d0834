"""What a client is told when a request cannot be served, in the form that OpenAI's clients read."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse


class ApiError(Exception):
    """An answer of status 4xx or 5xx. param: the request's key at fault."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The error object."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The whole answer; a client may try again after a 503."""
        headers = {"retry-after": "1"} if self.status == 503 else None
        return JSONResponse(self.body(), status_code=self.status, headers=headers)
