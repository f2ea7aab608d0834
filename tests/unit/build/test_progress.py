"""What a user sees of a build: plain lines where no one can watch, bars on a terminal."""

import io

import pytest

from pih.build import progress
from pih.build.progress import (
    Dropped,
    FetchAdvanced,
    FetchDone,
    FetchFailed,
    FetchStarted,
    StepDone,
    StepFailed,
    StepStarted,
)

EVENTS = [
    FetchStarted("zlib1g", 86_684),
    FetchAdvanced("zlib1g", 100),
    FetchDone("zlib1g", "deb"),
    FetchStarted("numpy", 20_000_000),
    FetchFailed("numpy"),
    StepDone("base", 0.0, cached=True),
    StepStarted("plan"),
    StepDone("plan", 1.25, cached=False),
    StepStarted("weights"),
    StepFailed("weights"),
    Dropped("base"),
]


def test_plain_lines():
    stream = io.StringIO()
    with progress.renderer(stream) as show:
        for event in EVENTS:
            show(event)
    assert stream.getvalue().splitlines() == [
        "fetch    zlib1g (0.1 MB)",
        "fetched  zlib1g from deb",
        "fetch    numpy (20.0 MB)",
        "failed   numpy",
        "lower    plan",
        "done     plan in 1.2 s",
        "pack     weights",
        "failed   weights",
        "damaged  base in the store: removed, to be made again",
    ]


def test_bars_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with progress.renderer(stream) as show:
        for event in EVENTS:
            show(event)
    assert "lower plan: done in 1.2 s" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


@pytest.mark.parametrize("event", EVENTS)
def test_silence(event, capfd):
    progress.silent(event)
    assert capfd.readouterr() == ("", "")
