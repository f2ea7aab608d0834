"""Ids to text, piece by piece, such that the pieces joined are the decoded whole."""

from __future__ import annotations

from collections.abc import Callable

INCOMPLETE = "\ufffd"  # what decoding gives for bytes that are no whole character (yet)
# A character has at most 4 bytes, so at most 4 ids: where more are held back, they will never make one.
LONGEST_HOLD = 16


class DecodeStream:
    """Decodes a window of ids: the last delivered piece too, since some decoders look at what came before."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._delivered = 0  # leading ids of the window whose text is delivered
        self._text = ""  # their text

    def push(self, token: int) -> str:
        """The text that this id completes; '' while it may be the start of a character."""
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith(INCOMPLETE) and len(self._window) - self._delivered < LONGEST_HOLD:
            return ""
        return self._deliver(text)

    def flush(self) -> str:
        """What was held back, as it is."""
        return self._deliver(self._decode(self._window)) if len(self._window) > self._delivered else ""

    def _deliver(self, text: str) -> str:
        piece = text[len(self._text) :]
        self._window = self._window[self._delivered :]
        self._delivered = len(self._window)
        self._text = self._decode(self._window)
        return piece
