"""Paths on the command line."""

from __future__ import annotations

import os

import click


class Path(click.Path):
    """As click's. An empty text names nothing, and does not mean this folder; `a/` is no file."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Raises click's error of a wrong value."""
        text = os.fspath(value)
        if not text:
            self.fail("an empty text names no path", param, ctx)
        if text.endswith("/") and not self.dir_okay:
            self.fail(f"{text} is the name of a folder", param, ctx)
        found = super().convert(value, param, ctx)
        if self.exists and not self.dir_okay and not os.path.isfile(found):  # noqa: PTH113 - text, bytes or path
            self.fail(f"{text} is no plain file", param, ctx)
        return found
