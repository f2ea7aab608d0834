"""The converted tokenizer against transformers' own reading of the same GGUF file."""

from __future__ import annotations

import random
import unicodedata

import pytest

from pih_steps.lower import files
from tests.truth import models

PASSAGE = (models.ROOT / "tests/truth/passage.txt").read_text()
TEXTS = [
    PASSAGE,
    "I'll say they've DON'T we're it's 'quoted'",
    "tabs\tand\n\n\nnewlines \n trailing   ",
    "你好 世界 Ελληνικά русский עברית हिन्दी 🙂🏽‍🚀 e\u0301",
    "def f(x):\n    return x ** 2  # squared\n\t\tif (a&&b)||!c {}",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|<|im_end|><empty_output>",
    "",
    " ",
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """transformers splits this file's text without its `pre`: the digits that it misses are put before the rest."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    source, artifacts = models.smollm2_source()
    with files.on_disk(source["file"], artifacts, {}) as path:
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name).backend_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer]
    )
    return tokenizer


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_same_ids_and_the_same_text_back(smollm2, theirs, text):
    own = smollm2.tokenizer.encode(text, add_special_tokens=False)
    assert own.ids == theirs.encode(text, add_special_tokens=False).ids
    assert smollm2.tokenizer.decode(own.ids, skip_special_tokens=False) == text


def test_the_same_ids_on_scattered_characters(smollm2, theirs):
    letters = [chr(code) for code in range(32, 0x3000) if unicodedata.category(chr(code))[0] in "LNPSZ"]
    for seed in range(200):
        text = "".join(random.Random(seed).choices([*letters, " ", "\n", "a", "1"], k=60))
        assert smollm2.tokenizer.encode(text).ids == theirs.encode(text, add_special_tokens=False).ids


def test_every_digit_is_a_token(smollm2):
    assert smollm2.tokenizer.encode("in 1911  42").tokens == ["in", "Ġ", "1", "9", "1", "1", "ĠĠ", "4", "2"]


def test_the_files_vocabulary_is_kept(smollm2):
    tokens = smollm2.metadata["tokenizer.ggml.tokens"]
    assert [smollm2.tokenizer.id_to_token(index) for index in range(len(tokens))] == tokens
