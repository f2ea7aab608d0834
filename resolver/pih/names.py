"""Names of Python packages, as registries compare them."""

from __future__ import annotations

import re


def normalized(name: str) -> str:
    """`Typing_Extensions` → `typing-extensions`, by the rule of PEP 503.

    `packaging.utils` has the same, and imports what a command that changes nothing would wait for.
    """
    return re.sub(r"[-_.]+", "-", name).lower()
