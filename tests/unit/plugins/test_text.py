"""model/text: streams give the whole text, templates what templates may rely on."""

import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pih_model_text import start
from pih_model_text import text as module
from pih_model_text.stream import DecodeStream
from pih_model_text.template import ChatTemplate
from tokenizers import Tokenizer, decoders, models

from pih_runtime.contracts import Context, TooLongError
from pih_runtime.errors import WorkerError
from tests.integration.worker.toy_bundle import TEMPLATE, tokenizer

TOY = tokenizer()
SPACED = Tokenizer(
    models.WordLevel({"▁a": 0, "b": 1, "▁": 2, "▁c": 3, "<0xE2>": 4, "<0x82>": 5, "<0xAC>": 6}, unk_token="b")
)
SPACED.decoder = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def streamed(decode, ids):
    stream = DecodeStream(decode)
    return [*(stream.push(token) for token in ids), stream.flush()]


@given(st.text(max_size=40))
def test_streamed_text_is_the_text(text):
    ids = TOY.encode(text, add_special_tokens=False).ids
    assert "".join(streamed(TOY.decode, ids)) == TOY.decode(ids)


@given(st.lists(st.integers(3, 399), max_size=40))
def test_streamed_ids_of_any_kind_decode_as_in_one_piece(ids):
    """Sixteen ids that are no character at all are given up on; shorter runs decode as a whole."""
    pieces = streamed(TOY.decode, ids)
    whole = TOY.decode(ids)
    if "\ufffd" not in whole:
        assert "".join(pieces) == whole
    assert "".join(pieces).replace("\ufffd", "") == whole.replace("\ufffd", "")


@given(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=20))
def test_a_decoder_that_strips_the_first_space_does_so_once(ids):
    assert "".join(streamed(SPACED.decode, ids)) == SPACED.decode(ids)


def test_a_character_of_several_ids_comes_whole():
    assert streamed(SPACED.decode, [0, 4, 5, 6, 3]) == ["a", "", "", "€", " c", ""]


def test_an_unfinished_character_is_given_as_it_is_at_the_end():
    ids = TOY.encode("€", add_special_tokens=False).ids
    assert len(ids) == 3
    assert streamed(TOY.decode, ids[:2]) == ["", "", "\ufffd"]


def test_special_ids_give_no_text():
    assert streamed(TOY.decode, [0, 1, 2]) == ["", "", "", ""]


def test_endless_broken_bytes_are_not_held_back_for_ever():
    assert any(streamed(TOY.decode, [TOY.token_to_id("\u0142")] * 40)[:-1])


@pytest.fixture
def make(tmp_path):
    def made(template=TEMPLATE, **about):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        TOY.save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(template)
        known = {"schema": 1, "template_variables": {}, "bos_id": None, "stop_ids": [2], "defaults": {"top_k": 3}}
        (folder / "text.json").write_text(json.dumps({**known, **about}))
        return start(Context(tmp_path, {}, {}, "", None, print, lambda: True, print))

    return made


def test_chat_and_plain_prompts_encode(make):
    text = make()
    ids = text.chat([{"role": "user", "content": "hi"}], {}, 99)
    assert TOY.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(1) == 2  # special tokens are ids of their own
    assert TOY.decode(text.encode("hi", 99)) == "hi"
    assert (text.stop_ids, text.defaults) == ({2}, {"top_k": 3})


def test_a_plain_prompt_starts_with_bos_where_the_model_says_so(make):
    assert make(bos_id=1).encode("hi", 99)[0] == 1
    assert make(bos_id=1).chat([{"role": "user", "content": "hi"}], {}, 99)[:2].count(1) == 1


PARTS = ["a", "é", "e\u0301", "\u1100\u1161", "😀", "1", "\t", "  ", "\n", "'s", " the", "<|im_start|>", "<|im_", "\0"]


@given(
    st.lists(st.tuples(st.sampled_from(PARTS) | st.text(max_size=3), st.integers(1, 60)), max_size=12),
    st.integers(0, 300),
)
def test_a_text_in_pieces_has_the_ids_of_the_whole_or_is_truly_too_long(parts, most):
    text = "".join(part * times for part, times in parts)
    wanted = TOY.encode(text, add_special_tokens=False).ids
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", 80)
        own = module.ModelText(TOY, None, frozenset(), [], {})
        try:
            assert own.encode(text, most) == wanted
        except TooLongError:
            assert len(wanted) > most


@pytest.mark.parametrize("unit", ["1", "\t", "😀", "a", "e\u0301", "\x80\xff", "lorem ipsum ", "<|im_start|>"])
def test_a_text_far_too_long_is_refused_after_little_of_it(make, unit):
    text = make("{{ messages[0].content }}")
    long = unit * ((4 << 20) // len(unit.encode()))
    for refuse in (lambda: text.encode(long, 255), lambda: text.chat([{"content": long}], {}, 255)):
        began = time.process_time()
        with pytest.raises(TooLongError, match="more than 255 tokens"):
            refuse()
        assert time.process_time() - began < 0.5


def test_other_threads_run_while_a_text_becomes_ids(make):
    """Measured by what this thread's work takes of the processor between two turns of the other one."""
    text, gaps, ended = make(), [], threading.Event()
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def watch():
        while not ended.is_set():
            began = time.clock_gettime(clock)
            time.sleep(0.001)
            gaps.append(time.clock_gettime(clock) - began)

    thread = threading.Thread(target=watch)
    thread.start()
    text.encode("seldom a short word " * 40_000, 1 << 30)  # takes more than a second
    ended.set()
    thread.join()
    assert len(gaps) > 100
    assert max(gaps) < 0.3


def test_options_reach_the_template(make):
    text = make("{% if flag is defined %}{{ flag }}{% endif %}{{ messages[0].content }}")
    assert TOY.decode(text.chat([{"content": "a"}], {"flag": "on"}, 99)) == "ona"


def test_a_model_without_template_says_so(make):
    with pytest.raises(ValueError, match="no chat template"):
        make("").chat([], {}, 99)


def test_a_broken_bundle_is_named(make, tmp_path):
    with pytest.raises(WorkerError, match="not a chat template"):
        make("{% if %}")
    make()
    (tmp_path / "model/tokenizer.json").write_text("{}")
    with pytest.raises(WorkerError, match="not a tokenizer"):
        start(Context(tmp_path, {}, {}, "", None, print, lambda: True, print))


def render(source):
    return ChatTemplate(source, {"eos_token": "</s>"}).render([], {})


def test_templates_find_what_they_rely_on():
    assert render("{{ {'a': '<é>'}|tojson }}") == '{"a": "<é>"}'
    assert render("{{ [1]|tojson(indent=1) }}") == "[\n 1\n]"
    assert render("{{ strftime_now('%Y') }}").isdigit()
    assert render("{{ eos_token }}{{ tools is none }}{{ add_generation_prompt }}") == "</s>TrueTrue"
    assert render("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "1"
    assert render("  {% if true %}\nx\n{% endif %}\ny") == "x\ny"


def test_a_template_that_refuses_is_quoted():
    with pytest.raises(ValueError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="fails on these messages"):
        render("{{ 1 / 0 }}")
    with pytest.raises(ValueError, match="refuses"):
        render("{{ missing.attribute.of.it }}")


@pytest.mark.parametrize(
    "attack", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ messages.__init__.__globals__ }}"]
)
def test_a_template_stays_in_its_sandbox(attack):
    with pytest.raises(ValueError, match=r"unsafe|refuses"):
        render(attack)


@pytest.mark.parametrize("name", ["messages", "tools", "raise_exception"])
def test_a_caller_cannot_replace_the_templates_own_variables(name):
    with pytest.raises(ValueError, match=name):
        ChatTemplate("x", {}).render([], {name: 1})
