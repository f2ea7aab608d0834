"""execution/continuous: stop rules hold wherever the pieces are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pih_execution_continuous.answer import Answer

from pih_runtime.contracts import Request
from pih_runtime.step import Sampling


class Spelled:
    """A token stream that gives a fixed text for each id, and `tail` at the end."""

    def __init__(self, texts, tail=""):
        self.texts = texts
        self.tail = tail

    def push(self, token):
        return self.texts[token]

    def flush(self):
        return self.tail


def run(texts, stop=(), limit=100, stop_ids=(), tail=""):
    """All pieces of an answer that says `texts`."""
    request = Request((1,), limit, Sampling(), frozenset(stop_ids), tuple(stop))
    answer = Answer(request, Spelled(texts, tail), limit)
    pieces = []
    for token in range(len(texts)):
        piece = answer.push(token)
        if piece is not None:
            pieces.append(piece)
            if piece.finish:
                break
    return pieces


@given(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_the_text_ends_before_the_first_stop_string_however_it_is_cut(texts, stops):
    pieces = run(texts, stops, limit=len(texts))
    whole = "".join(texts)
    places = [whole.find(stop) for stop in stops if stop in whole]
    said = "".join(piece.text for piece in pieces)
    assert pieces[-1].finish == ("stop" if places else "length")
    if not places:
        assert said == whole
        return
    # The answer ends with the id that completes the first stop string; of those complete then, the leftmost counts.
    told = ""
    for text in texts:
        told += text
        found = [told.find(stop) for stop in stops if stop in told]
        if found:
            assert said == told[: min(found)]
            break


@given(st.lists(st.text("abc", max_size=3), min_size=1, max_size=12))
def test_text_that_cannot_start_a_stop_string_is_not_held_back(texts):
    pieces = run(texts, ["xyz"], limit=len(texts) + 1)
    assert "".join(piece.text for piece in pieces) == "".join(texts)


def test_the_possible_start_of_a_stop_string_is_held_back_until_it_is_none():
    assert [piece.text for piece in run(["a<", "|e", "x>b"], ["<|end|>"])] == ["a", "<|ex>b"]


def test_a_stop_id_ends_the_answer_and_counts_but_is_not_said():
    (first, last) = run(["a", "b", "c"], stop_ids=[1])
    assert (first.text, last.text, last.finish, last.tokens) == ("a", "", "stop", 2)


def test_what_was_held_back_is_said_when_the_answer_ends():
    assert [(piece.text, piece.finish) for piece in run(["a<"], ["<|"], limit=1)] == [("a<", "length")]
    assert "".join(piece.text for piece in run(["a<", ""], ["<|"], stop_ids=[1])) == "a<"


def test_a_stop_string_in_the_last_bytes_counts():
    assert [(piece.text, piece.finish) for piece in run(["a"], ["z"], limit=1, tail="z")] == [("a", "stop")]


@pytest.mark.parametrize("limit", [1, 2])
def test_length_ends_it(limit):
    pieces = run(["a", "b", "c"], limit=limit)
    assert (pieces[-1].finish, pieces[-1].tokens) == ("length", limit)
