"""What Nix tells while it builds, in its `internal-json` form: one event a line."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import attrs

from pih.build.progress import Listener, StepDone, StepFailed, StepStarted

_PREFIX = "@nix "
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_DERIVATION = re.compile(r".*/[0-9a-z]{32}-(?:pih-)?(.+)\.drv")
_LINES = 30


class _Activity(IntEnum):
    BUILDS = 104  # all of them
    BUILD = 105


class _Result(IntEnum):
    LINE = 101  # of a builder's output
    PROGRESS = 105  # done, expected, running, failed


@attrs.frozen
class Told:
    """built: the derivations that were built, in the order of their ends. said: the last lines meant for people."""

    built: tuple[str, ...]
    said: tuple[str, ...]


def follow(lines: Iterable[str], listener: Listener) -> Told:
    """Read to the end, telling the listener of each build."""
    built: list[str] = []
    said: deque[str] = deque(maxlen=_LINES)
    running: dict[int, tuple[str, float]] = {}
    ended: deque[tuple[str, float]] = deque()  # whether well is said afterwards: a build that was given up ends too
    builds, failed = -1, 0
    fails = False

    def confirm(number: int) -> None:
        for name, seconds in [ended.popleft() for _ in range(min(number, len(ended)))]:
            built.append(name)
            listener(StepDone(name, seconds, cached=False))

    for line in lines:
        match _event(line):
            case {"action": "start", "type": _Activity.BUILDS, "id": number}:
                builds = number
            case {"action": "start", "type": _Activity.BUILD, "id": number, "fields": [str(derivation), *_]}:
                running[number] = (_name(derivation), time.monotonic())
                listener(StepStarted(_name(derivation)))
            case {
                "action": "result",
                "type": _Result.PROGRESS,
                "id": number,
                "fields": [int(well), _, _, int(count)],
            } if number == builds:
                if count > failed:  # said just before the build that failed stops
                    failed, fails = count, True
                confirm(well - len(built))
            case {"action": "stop", "id": number} if number in running:
                name, started = running.pop(number)
                if fails:
                    listener(StepFailed(name))
                else:
                    ended.append((name, time.monotonic() - started))
                fails = False
            case {"action": "result", "type": _Result.LINE, "fields": [str(text), *_]}:
                said.append(text)
            case {"action": "msg", "level": 0, "msg": str(text)}:
                said.extend(_COLOUR.sub("", text).splitlines())
    if not failed:  # of the last build, Nix does not say it
        confirm(len(ended))
    for name, _ in (*ended, *running.values()):
        listener(StepFailed(name))
    return Told(tuple(built), tuple(said))


def _event(line: str) -> Any:
    """A line that is no event is one meant for people."""
    text = line.removeprefix(_PREFIX)
    if text != line:
        try:
            return json.loads(text)
        except ValueError:
            line = text
    return {"action": "msg", "level": 0, "msg": line}


def _name(derivation: str) -> str:
    found = _DERIVATION.fullmatch(derivation)
    return found[1] if found else derivation
