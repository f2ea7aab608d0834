"""Processes that a plugin begets: seen in /proc whoever their parent is by now, and ended with the plugin's own.

The suite's process for a plugin is two: one that makes the checks, and its parent, which runs nothing of the plugin's,
inherits every orphan below it (prctl(2), PR_SET_CHILD_SUBREAPER), and leaves last.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_SECONDS = 5.0  # for what is killed to be gone


def below(parent: int) -> dict[int, str]:
    """All descendants of a process by id: their names."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = path.read_text(errors="replace").rpartition(")")
        except OSError:  # it has ended meanwhile
            continue
        state, above = after.split()[:2]
        pid, _, name = before.partition(" (")
        parents[int(pid)] = int(above)
        names[int(pid)] = f"{name} (ended, not waited for)" if state == "Z" else name
    found: dict[int, str] = {}
    new = {parent}
    while new := {pid for pid, above in parents.items() if above in new and pid not in found}:
        found |= {pid: names[pid] for pid in new}
    return found


def supervised(action: Callable[[], None], told: Callable[[str], None]) -> None:
    """Run `action` in a child, and end as it does, without any process that it left: `told` is given their names.

    Where standard input ends, so does all of it at once.
    """
    _prctl(_CHILD_SUBREAPER, 1)
    child = os.fork()
    if not child:
        _prctl(_PDEATHSIG, signal.SIGKILL)
        action()
        return
    threading.Thread(target=_watch, args=(child,), daemon=True).start()
    status = -1
    while status < 0:
        pid, found = os.wait()  # an orphan's end is of no interest
        status = found if pid == child else -1
    if left := _ended():
        told(", ".join(left))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.stdout.flush()
    os._exit(code)


def _watch(child: int) -> None:
    while os.read(0, 1 << 10):
        continue
    os.kill(child, signal.SIGKILL)


def _ended() -> list[str]:
    """Kill what is left, and what that begets meanwhile; their names."""
    names: dict[int, str] = {}
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        for pid, name in below(os.getpid()).items():
            names.setdefault(pid, name)
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended, or is another user's
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            break
        time.sleep(0.01)
    return list(names.values())


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
