"""What a plugin makes of its settings in the lock."""

from pathlib import Path

import pytest

from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError


def counts(settings):
    context = Context(Path(), settings, {}, "", None, print, lambda: True, print)
    return context.counts(queue=5, body_bytes=7)


def test_what_is_not_said_holds_as_the_plugin_has_it():
    assert counts({}) == {"queue": 5, "body_bytes": 7}
    assert counts({"queue": 9}) == {"queue": 9, "body_bytes": 7}


@pytest.mark.parametrize("value", ["x", "9", True, 1.0, 0, -1, None, [], {}, float("inf")])
def test_a_value_that_is_no_count_is_named(value):
    with pytest.raises(WorkerError, match="queue must be a whole number from 1"):
        counts({"queue": value})


def test_a_setting_that_the_plugin_does_not_have_is_named():
    with pytest.raises(WorkerError, match="unknown setting 'body_byte'") as caught:
        counts({"body_byte": 9})
    assert caught.value.fix == "settings are: queue, body_bytes"
