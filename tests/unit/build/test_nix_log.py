"""What Nix tells while it builds, as it told it: one build that went well, one that failed, and plain lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih.build.nix_log import follow
from pih.build.progress import StepDone, StepFailed, StepStarted

STORE = "/nix/store/" + "a" * 32


def event(**fields):
    return "@nix " + json.dumps(fields) + "\n"


def start(number, name):
    return event(
        action="start", id=number, type=105, level=3, text="building", fields=[f"{STORE}-{name}.drv", "", 1, 1]
    )


def progress(done, failed):
    return event(action="result", id=7, type=105, fields=[done, 2, 1, failed])


BUILDS = event(action="start", id=7, type=104, level=0, text="")


def told(*lines):
    events = []
    found = follow(lines, events.append)
    return found, events


def test_builds_are_told_as_they_start_and_end():
    found, events = told(
        BUILDS,
        start(1, "pih-plan"),
        start(2, "pih-app"),
        progress(0, 0),
        event(action="stop", id=2),
        progress(1, 0),
        event(action="stop", id=1),
        event(action="stop", id=7),
    )
    assert found.built == ("app", "plan")
    assert events[:2] == [StepStarted("plan"), StepStarted("app")]
    assert [(done.id, done.cached) for done in events[2:] if isinstance(done, StepDone)] == [
        ("app", False),
        ("plan", False),
    ]


def test_a_failed_build_is_told_and_its_last_words_kept():
    found, events = told(
        BUILDS,
        start(1, "pih-plan"),
        start(2, "zlib1g-1.2"),
        event(action="result", id=1, type=101, fields=["the plan is another"]),
        progress(0, 1),
        event(action="stop", id=1),
        event(action="msg", level=3, msg="of no interest"),
        event(action="msg", level=0, msg="\x1b[31;1merror:\x1b[0m builder failed\nwith exit code 1"),
    )
    assert found.built == ()
    assert events[2:] == [StepFailed("plan"), StepFailed("zlib1g-1.2")]
    assert found.said == ("the plan is another", "error: builder failed", "with exit code 1")


def test_a_build_that_is_given_up_when_another_fails_was_not_built():
    found, events = told(
        BUILDS,
        start(1, "pih-kernels"),
        start(2, "zlib1g-1.2"),
        progress(0, 1),
        event(action="stop", id=2),
        event(action="stop", id=1),
    )
    assert found.built == ()
    assert events[2:] == [StepFailed("zlib1g-1.2"), StepFailed("kernels")]


def test_only_the_last_lines_are_kept():
    assert told(*(f"line {number}\n" for number in range(100)))[0].said == tuple(f"line {n}" for n in range(70, 100))


@pytest.mark.parametrize("line", ["@nix {", "error: no Nix at all\n", "@nix [1]", "@nix 7", ""])
def test_a_line_of_another_form_is_no_event(line):
    assert told(line)[1] == []


@given(st.lists(st.text() | st.builds("@nix {}".format, st.text()), max_size=5))
def test_whatever_is_said_is_read(lines):
    assert told(*lines)[1] == []
