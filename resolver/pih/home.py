"""The user's home folder, below which store and keyring lie unless the environment names other places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pih_runtime.errors import UsageError


def home(environment: Mapping[str, str], instead: str) -> Path:
    """$HOME, else what the system says of this user; raises UsageError where neither does.

    instead: the variable that names the place without a home, for the message.
    """
    try:
        return Path(environment.get("HOME") or Path.home())
    except RuntimeError as problem:
        raise UsageError("nothing says where your home folder is", fix=f"set HOME, or {instead}") from problem
