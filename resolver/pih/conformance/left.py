"""What a plugin leaves behind in its process: threads, open files, and processes of its own."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pih.conformance import offspring
from pih.conformance.findings import BrokenError

_SECONDS = 2.0  # for what has been told to end


@dataclass(frozen=True, slots=True)
class Present:
    """What there is, by id: its name. python: threads that run Python, by their idents; tasks: all, by the kernel's."""

    python: Mapping[int, str]
    tasks: Mapping[int, str]
    files: Mapping[int, str]
    processes: Mapping[int, str]


def present() -> Present:
    """Now."""
    others = offspring.below(os.getppid())
    others.pop(os.getpid(), None)
    return Present(_python(), _tasks(), _files(), others)


def check(before: Present, when: str) -> None:
    """BrokenError where more is there than before, also after a while, with the names of what is new."""
    _settled(lambda: _more(before, present(), ("tasks", "files", "processes")), when)


def check_first(before: Present, when: str) -> None:
    """As `check`, after a first use: files, and threads that a native library starts once for all, may stay."""
    _settled(lambda: _more(before, present(), ("python", "processes")), when)


_WORDS = {"python": "threads", "tasks": "threads", "files": "open files", "processes": "child processes"}


def _settled(more: Callable[[], str], when: str) -> None:
    until = time.monotonic() + _SECONDS
    while (found := more()) and time.monotonic() < until:
        time.sleep(0.02)
    if found:
        raise BrokenError(found.format(when=when))


def _more(before: Present, now: Present, kinds: tuple[str, ...]) -> str:
    for kind in kinds:
        old, new = getattr(before, kind), getattr(now, kind)
        if len(new) > len(old):
            names = ", ".join(name.replace("{", "{{").replace("}", "}}") for key, name in new.items() if key not in old)
            return f"{len(new) - len(old)} {_WORDS[kind]} are left {{when}}: {names}"
    return ""


def _python() -> dict[int, str]:
    """Those of `threading` have a name; others are where they run, where that is in Python."""
    names = {thread.ident or 0: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - documented, its name notwithstanding
        names.setdefault(ident, f"one that runs {frame.f_code.co_filename}:{frame.f_lineno}")
    nameless = _thread._count() + 1 - len(names)  # noqa: SLF001 - no other way tells
    return names | {-number: "one without a name" for number in range(1, nameless + 1)}


def _tasks() -> dict[int, str]:
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[int, str] = {}
    for path in Path("/proc/self/task").iterdir():
        try:
            found[int(path.name)] = names.get(int(path.name)) or f"{(path / 'comm').read_text().strip()}, not by name"
        except OSError:  # it has ended meanwhile
            continue
    return found


def _files() -> dict[int, str]:
    found: dict[int, str] = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            found[int(path.name)] = str(path.readlink())
        except OSError:  # the one by which this folder is read
            continue
    return found
