"""How a check ends that does not pass; every check of the suite raises one of these, and no other module does."""

from __future__ import annotations

from collections.abc import Callable

Named = tuple[str, Callable[[], None]]  # a check: its name, and what makes it


class BrokenError(Exception):
    """The plugin does not keep its contract."""


class SkippedError(Exception):
    """What is asked says nothing about the plugin here."""
