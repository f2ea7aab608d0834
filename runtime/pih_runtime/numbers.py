"""Numbers of texts that somebody else has written."""

from __future__ import annotations


def whole(digits: str) -> int:
    """For a JSON parser's `parse_int`; raises ValueError, in words for the text's author, for too many digits."""
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number of {len(digits)} digits is too long") from None
