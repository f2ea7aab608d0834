"""One class for each way to fail, with its documented exit code.

Why here: the worker in a bundle and the build-time program share the codes, and
this package is the lowest layer. A message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import traceback
from pathlib import Path


class PihError(Exception):
    """A failure that its user can understand and act on; shown without a traceback."""

    exit_code = 9

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        cure = f"\n  to fix: {self.fix}" if self.fix else ""
        return f"{place}{self.what}{cure}"


class UsageError(PihError):
    """The command line: an unknown option, a value that is not possible."""

    exit_code = 2


class ProfileError(PihError):
    """The profile: a key, type or value that is not right."""

    exit_code = 3


class ResolutionError(PihError):
    """The resolver: no set of plugins, kernels and memory answers the profile."""

    exit_code = 4


class LockError(PihError):
    """The lock: malformed, or not of this profile and catalog."""

    exit_code = 5


class FetchError(PihError):
    """An artifact that could not be had, or whose digest is not the locked one."""

    exit_code = 6


class BuildError(PihError):
    """A build step."""

    exit_code = 7


class SealError(PihError):
    """A bundle whose bytes are not what it says."""

    exit_code = 8


class WorkerError(PihError):
    """The worker, the engine that runs it, or the host: a full disk, a place that may not be read or written."""

    exit_code = 9


def described(problem: BaseException) -> str:
    """One line: a PihError's own words, of any other error also its kind and the place it came from."""
    if isinstance(problem, PihError):
        return str(problem)
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(problem).__name__}: {problem}{place}"
