"""Amounts of bytes: read as they are written, written as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih.diff import amounts


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("12", 12), ("1kB", 1000), ("1.5 MB", 1_500_000), ("2 MiB", 2 << 20), ("0.5GB", 500_000_000)],
)
def test_amounts(text, count):
    assert amounts.parsed(text) == count


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.00 kB"),
        (1000, "1.00 kB"),
        (999_499, "999 kB"),
        (999_600, "1.00 MB"),
        (-98_240_000, "-98.2 MB"),
        (9_994_000, "9.99 MB"),
        (9_996_000, "10.0 MB"),
        (99_950_000, "100 MB"),
        (12_345_678_901, "12.3 GB"),
    ],
)
def test_shown(count, text):
    assert amounts.shown(count) == text


@given(st.integers(0, 10**14))
def test_what_is_shown_is_an_amount_near_by(count):
    assert amounts.parsed(amounts.shown(count)) == pytest.approx(count, rel=0.006)


@given(st.integers(0, 10**14), st.sampled_from([0.0, 0.01, 0.05, 1.0]))
def test_a_limit_is_never_below_what_it_is_for(count, headroom):
    limit = amounts.parsed(amounts.above(count, headroom))
    assert limit >= count * (1 + headroom) - 1
    assert limit <= count * (1 + headroom) * 1.011 + 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (100, 100, "unchanged"),
        (1000, 2000, "+1.00 kB, +100.0 %"),
        (10**6, 10**6 - 450, "-450 B, -0.045 %"),
        (10**9, 10**9 + 1, "+1 B"),
        (0, 5, "+5 B"),
    ],
)
def test_changes(old, new, text):
    assert amounts.change(old, new) == text


@pytest.mark.parametrize("text", ["\u0661MB", "\uff11", "1.\u0661 MB"])
def test_a_digit_of_another_script_is_no_digit(text):
    assert amounts.parsed(text) is None
