"""Text that comes from outside, made safe to print: a name may hold what moves the cursor or turns the line around."""

from __future__ import annotations

from collections.abc import Iterable

import click


def printable(text: str) -> str:
    """The text with all that is not seen written as its escape; lines of a longer text go through one by one."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def say(lines: Iterable[str], *, err: bool = False) -> None:
    """Print each of the lines as one line, whatever it holds."""
    click.echo("\n".join(map(printable, lines)), err=err)
