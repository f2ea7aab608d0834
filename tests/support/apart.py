"""A check in a process of its own: what a planted bug writes where nobody gave it leave stays in there."""

import faulthandler
import os
import signal
import sys
from collections.abc import Callable

import pytest


def raised(check: Callable[[], object]) -> str:
    """What the check raises, `Kind: words`; '' where it passes; else the signal that ended its process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.disable()  # that it ends so is an answer, not a failure of the run
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # those of its pool did not come along, and would be waited for without an end
        words = "SystemExit: before its end"
        try:
            check()
            words = ""
        except BaseException as problem:  # noqa: BLE001 - whatever it is, it is the answer
            words = f"{type(problem).__name__}: {problem}"
        finally:
            os.write(writer, words.encode(errors="replace")[:4096])
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if said.startswith("Skipped: "):
        pytest.skip(said.removeprefix("Skipped: "))
    return said or (f"{signal.Signals(-code).name}: " if code < 0 else "")
