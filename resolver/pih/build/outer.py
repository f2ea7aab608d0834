"""What the builders that run a tool of the user's have in common: its process, and a name for what it builds."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import TextIO, TypeVar, cast

from pih_runtime.errors import BuildError

_GRACE = 30.0  # seconds that a tool has to end what it runs

Told = TypeVar("Told")


def name(deployment: str, lock_path: Path, source_root: Path) -> str:
    """Of what a tool keeps for a deployment: the same after an edit of its lock, for no other lock or checkout."""
    places = json.dumps([str(lock_path.resolve()), str(source_root.resolve())])
    return f"{deployment}-{hashlib.sha256(places.encode()).hexdigest()[:16]}"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other process is in such a block of the same path; waits until none is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(
    command: Sequence[str],
    follow: Callable[[TextIO], Told],
    *,
    environment: Mapping[str, str],
    package: str,
    cwd: Path | None = None,
) -> tuple[int, str, Told]:
    """Exit code and standard output of a tool, and what `follow` made of its standard error, read to the end.

    However the block is left, the tool has ended, with all that it runs. package: what to install where it is not
    there. Raises BuildError where it cannot be started.
    """
    with os.fdopen(os.memfd_create("output"), "w+b") as output:
        try:
            process = Popen(
                command,
                cwd=cwd,
                env=dict(environment),
                stdin=DEVNULL,
                stdout=output,
                stderr=PIPE,
                encoding="utf-8",
                errors="replace",
            )
        except FileNotFoundError:
            fix = f"install {package}, or build with the embedded builder"
            raise BuildError(f"{command[0]} is not installed", fix=fix) from None
        except OSError as problem:
            raise BuildError(f"{command[0]} cannot be started: {problem.strerror}") from problem
        try:
            told = follow(cast("TextIO", process.stderr))
            code = process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            if process.stderr:
                process.stderr.close()
        output.seek(0)
        return code, output.read().decode(errors="replace"), told


def _end(process: Popen[str]) -> None:
    """Ask the tool to end, which then ends what it runs; what it still says is read, or it would wait for that."""
    process.terminate()
    try:
        process.communicate(timeout=_GRACE)
    except TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
