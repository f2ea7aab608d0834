"""Which files of the step program each step imports: declared inputs, like everything a step reads.

A table and not a search, so that a lock does not depend on the text of the code; a test compares it
with the imports that the code has.
"""

from __future__ import annotations

_COMMON = ("resolver/pih_steps", "runtime/pih_runtime")


def program(run: str) -> tuple[str, ...]:  # noqa: ARG001 - one answer for all until steps are told apart
    """Trees of the program that runs this step."""
    return _COMMON
