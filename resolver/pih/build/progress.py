"""What a build tells while it works: events, and two ways to show them.

Builders call a listener with events, from any thread; they know nothing of terminals.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import attrs


@attrs.frozen
class FetchStarted:
    """A download begins. size: bytes, 0 where it is not known."""

    name: str
    size: int


@attrs.frozen
class FetchAdvanced:
    """done: bytes so far, of the size that FetchStarted gave."""

    name: str
    done: int


@attrs.frozen
class FetchDone:
    """source: what supplied it, e.g. 'mirror' or 'pypi'."""

    name: str
    source: str


@attrs.frozen
class FetchFailed:
    """No source had it, or what came was not it."""

    name: str


@attrs.frozen
class StepStarted:
    """A step runs."""

    id: str


@attrs.frozen
class StepDone:
    """A step's output is there. cached: an earlier build had made it."""

    id: str
    seconds: float
    cached: bool


@attrs.frozen
class StepFailed:
    """A step failed, or was given up because another one had."""

    id: str


@attrs.frozen
class Dropped:
    """What an earlier run had made was damaged since: it is removed, and made again. name: of the step, or in words."""

    name: str


@attrs.frozen
class Withdrawn:
    """A locked plugin, by id and version, was withdrawn by its publisher. why: the reason; fix: what to do."""

    name: str
    why: str
    fix: str


# What a step does, where a word of its own says it better.
_VERBS = {"kernels": "compile", "plan": "lower", "weights": "pack", "digests": "hash", "image": "assemble"}

Event = (
    FetchStarted | FetchAdvanced | FetchDone | FetchFailed | StepStarted | StepDone | StepFailed | Dropped | Withdrawn
)
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Show nothing."""


@contextmanager
def renderer(stream: TextIO = sys.stderr) -> Iterator[Listener]:
    """Bars on a terminal, plain lines elsewhere."""
    with bars(stream) if stream.isatty() else lines(stream) as listener:
        yield listener


@contextmanager
def lines(stream: TextIO) -> Iterator[Listener]:
    """One line for each thing that starts or ends; nothing for a step whose result was there already."""
    lock = threading.Lock()

    def show(event: Event) -> None:
        text = _line(event)
        if text:
            with lock:
                stream.write(text + "\n")
                stream.flush()

    yield show


def _verb(step: str) -> str:
    return _VERBS.get(step, "build")


def _line(event: Event) -> str:
    match event:
        case FetchStarted(name, size):
            return f"fetch    {name} ({size / 1e6:.1f} MB)" if size else f"fetch    {name}"
        case FetchDone(name, source):
            return f"fetched  {name} from {source}"
        case FetchFailed(name):
            return f"failed   {name}"
        case StepStarted(name):
            return f"{_verb(name):8} {name}"
        case StepDone(name, seconds, False):
            return f"done     {name} in {seconds:.1f} s"
        case StepFailed(name):
            return f"failed   {name}"
        case Dropped(name):
            return f"damaged  {name} in the store: removed, to be made again"
        case Withdrawn(name, why, fix):
            return f"withdrawn {name} by its publisher: {why}; for another: {fix}"
    return ""


@contextmanager
def bars(stream: TextIO) -> Iterator[Listener]:
    """A bar for each download, a spinner for each running step; they go away when all is done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    console = Console(file=stream)
    fetches = Progress(
        TextColumn("fetch {task.description}"), BarColumn(), DownloadColumn(), console=console, transient=True
    )
    steps = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    )
    tasks: dict[str, TaskID] = {}

    def show(event: Event) -> None:
        match event:
            case FetchStarted(name, size):
                tasks[f"fetch {name}"] = fetches.add_task(name, total=size or None)
            case FetchAdvanced(name, done):
                fetches.update(tasks[f"fetch {name}"], completed=done)
            case FetchDone(name) | FetchFailed(name):
                fetches.remove_task(tasks.pop(f"fetch {name}"))
            case StepStarted(name):
                tasks[f"step {name}"] = steps.add_task(f"{_verb(name)} {name}", total=None)
            case StepDone(name, seconds, False):
                steps.remove_task(tasks.pop(f"step {name}"))
                console.print(f"{_verb(name)} {name}: done in {seconds:.1f} s", highlight=False)
            case StepFailed(name):
                steps.remove_task(tasks.pop(f"step {name}"))
            case Dropped() | Withdrawn():
                console.print(_line(event), highlight=False, markup=False)

    from rich.console import Group
    from rich.live import Live

    with Live(Group(fetches, steps), console=console, transient=True):
        yield show
