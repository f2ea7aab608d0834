"""From sampled ids to delivered text: stop ids, stop strings, length."""

from __future__ import annotations

from pih_runtime.contracts import Piece, Request, TokenStream


class Answer:
    """Text of one request. Holds back the longest end of it that may be the start of a stop string."""

    def __init__(self, request: Request, stream: TokenStream, limit: int) -> None:
        self._request = request
        self._stream = stream
        self._limit = limit  # new ids
        self._held = ""
        self.tokens = 0
        self.cached = 0

    def push(self, token: int) -> Piece | None:
        """Take the next id; a piece where there is text to deliver or the answer ends."""
        self.tokens += 1
        if token in self._request.stop_ids:
            return self._last("stop")
        self._held += self._stream.push(token)
        stop = self._find_stop()
        if stop is not None:
            return self._piece(self._held[:stop], "stop")
        if self.tokens >= self._limit:
            return self._last("length")
        keep = _held_back(self._held, self._request.stop)
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return self._piece(text, "") if text else None

    def failed(self, reason: str) -> Piece:
        """The piece that ends an answer which cannot go on."""
        return self._piece(reason, "error")

    def _last(self, finish: str) -> Piece:
        self._held += self._stream.flush()
        stop = self._find_stop()
        return self._piece(self._held, finish) if stop is None else self._piece(self._held[:stop], "stop")

    def _find_stop(self) -> int | None:
        """Where the first stop string starts."""
        places = [self._held.find(stop) for stop in self._request.stop]
        return min((place for place in places if place >= 0), default=None)

    def _piece(self, text: str, finish: str) -> Piece:
        return Piece(text=text, tokens=self.tokens, cached=self.cached, finish=finish)


def _held_back(text: str, stops: tuple[str, ...]) -> int:
    """Length of the longest end of `text` with which a stop string starts."""
    longest = min(len(text), max((len(stop) - 1 for stop in stops), default=0))
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)
