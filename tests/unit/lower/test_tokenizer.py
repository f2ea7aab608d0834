"""A GGUF file's tokenizer as tokenizer.json: what it merges, what it keeps whole, what is refused."""

from __future__ import annotations

import json

import pytest
import tokenizers

from pih_runtime.errors import BuildError
from pih_steps.lower.tokenizer import token_id, tokenizer_json
from tests.unit.lower.gguf_file import METADATA


def converted(**changes):
    metadata = {**METADATA, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(metadata, "model.gguf")))


def tokens(text, **changes):
    return converted(**changes).encode(text, add_special_tokens=False).tokens


def test_merges_apply_in_order():
    assert tokens("a the") == ["a", "Ġthe"]


def test_digits_stand_alone_where_the_model_was_trained_so():
    assert tokens("12") == ["1", "2"]
    assert tokens("  12") == ["ĠĠ", "1", "2"]
    assert tokens("12", pre="gpt-2") == ["12"]
    assert tokens("  12", pre="gpt-2") == ["Ġ", "Ġ", "12"]


def test_special_and_added_tokens_are_kept_whole():
    assert tokens("a<|end|><tool>b") == ["a", "<|end|>", "<tool>", "b"]
    assert converted().decode([0, 1, 2], skip_special_tokens=True) == "<tool>!"


def test_text_comes_back():
    tokenizer = converted()
    text = "the the\n12  a"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_ids_of_special_tokens():
    assert token_id(METADATA, "eos_token_id", "model.gguf") == 0
    assert token_id(METADATA, "bos_token_id", "model.gguf") is None
    with pytest.raises(BuildError, match="eos_token_id is 9999, not the id of a token"):
        token_id({**METADATA, "tokenizer.ggml.eos_token_id": 9999}, "eos_token_id", "model.gguf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "llama"}, "tokenizer is of the kind 'llama'"),
        ({"pre": "unheard-of"}, "pre-tokenizer 'unheard-of' is not known"),
        ({"pre": ["smollm"]}, "is not known"),
        ({"tokens": ["a", "a"]}, "token_type does not have one entry for each token"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, "holds a token twice"),
        ({"tokens": 5}, "tokenizer.ggml.tokens is no list of strings"),
        ({"merges": ["a b"]}, "the merge 'a b' is not of two tokens into a third"),
        ({"merges": ["ab"]}, "the merge 'ab' is not of two tokens"),
    ],
)
def test_a_tokenizer_that_does_not_hold_together_is_refused(changes, message):
    with pytest.raises(BuildError, match=message) as caught:
        converted(**changes)
    assert "model.gguf" in str(caught.value)
