"""surface/openai: what is asked for, and refusals that name the key."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pih_surface_openai import parameters
from pih_surface_openai.errors import ApiError

from pih_runtime.step import Sampling

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PLAIN = {"model": "m", "prompt": "hello"}


def chat(**more):
    return parameters.chat({**HELLO, **more}, {"temperature": 0.6, "top_k": 20, "top_p": 0.95})


def completion(**more):
    return parameters.completion({**PLAIN, **more}, {})


def test_the_models_own_sampling_is_the_default_and_a_seed_is_drawn():
    first, second = chat().sampling, chat().sampling
    assert (first.temperature, first.top_k, first.top_p, first.min_p) == (0.6, 20, 0.95, 0.0)
    assert first.seed != second.seed
    assert completion().sampling.temperature == 1.0


def test_what_the_request_says_wins():
    asked = chat(temperature=0, top_p=0.5, top_k=-1, min_p=0.1, seed=-1, stop="x", max_tokens=3)
    assert 0 < chat(top_p=0).sampling.top_p < 1e-6  # the likeliest id alone: its share is more in any vocabulary
    assert asked.sampling == Sampling(temperature=0, top_k=0, top_p=0.5, min_p=0.1, seed=(1 << 64) - 1)
    assert (asked.stop, asked.max_tokens, asked.stream) == (("x",), 3, False)


def test_null_is_as_if_not_said():
    assert chat(temperature=None, stop=None, max_tokens=None, n=None, tools=None, stream=None).max_tokens is None


def test_neutral_values_of_unserved_parameters_pass():
    chat(n=1, logprobs=False, presence_penalty=0, frequency_penalty=0.0, logit_bias={}, tools=[], tool_choice="none")
    chat(response_format={"type": "text"}, user="u", metadata={"a": "b"}, store=False, parallel_tool_calls=True)
    completion(best_of=1, echo=False, suffix="")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n", 2),
        ("n", True),
        ("n", 1.0),
        ("best_of", True),
        ("logprobs", 0),
        ("logprobs", 0.0),
        ("echo", 0),
        ("store", 0),
        ("top_logprobs", False),
        ("top_logprobs", 0.0),
        ("presence_penalty", False),
        ("frequency_penalty", False),
        ("frequency_penalty", math.inf),
        ("logit_bias", []),
        ("tools", {}),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_p", math.inf),
        ("top_p", True),
        ("min_p", math.nan),
        ("min_p", False),
        ("top_k", True),
        ("top_k", 1 << 31),
        ("seed", False),
        ("seed", 1.0),
        ("max_tokens", True),
        ("max_completion_tokens", True),
        ("max_tokens", math.inf),
        ("stream", 1),
        ("stream", 0.0),
        ("stop", True),
        ("stop", "x" * 257),
        ("logprobs", True),
        ("presence_penalty", 0.1),
        ("frequency_penalty", -1),
        ("logit_bias", {"1": 5}),
        ("tools", [{"type": "function"}]),
        ("response_format", {"type": "json_object"}),
        ("reasoning_effort", "low"),
        ("temperature", 2.5),
        ("temperature", True),
        ("temperature", "hot"),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", -0.1),
        ("seed", 1 << 64),
        ("seed", "s"),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", [""]),
        ("stop", 5),
        ("stop", "\ud800"),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("max_tokens", 0),
        ("max_tokens", 1.0),
        ("model", None),
        ("messages", []),
        ("messages", "hello"),
        ("chat_template_kwargs", []),
        ("temprature", 1),
    ],
)
def test_a_value_that_cannot_be_served_is_refused_by_name(key, value):
    with pytest.raises(ApiError) as caught:
        chat(**{key: value})
    assert (caught.value.status, caught.value.param) == (400, key)
    assert key in str(caught.value)


def test_stream_options():
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage
    assert not chat(stream=True, stream_options={"include_usage": False, "include_obfuscation": False}).include_usage
    with pytest.raises(ApiError, match="include_usage"):
        chat(stream=True, stream_options={"usage": True})


@pytest.mark.parametrize("options", [{"include_usage": 1}, {"include_obfuscation": 0}, {"include_obfuscation": True}])
def test_stream_options_that_are_none(options):
    with pytest.raises(ApiError, match="include_"):
        chat(stream=True, stream_options=options)


def test_a_temperature_that_single_precision_cannot_divide_by_is_zero():
    assert [chat(temperature=value).sampling.temperature for value in (1e-310, 1e-40, 9e-6, -0.0)] == [0.0] * 4
    assert chat(temperature=1e-5).sampling.temperature == 1e-5


def test_a_refusal_quotes_no_more_than_a_few_words():
    long = "x" * 100_000
    for more in ({long: 1}, {"n": long}, {"n": [long] * 9}, {"messages": [{"role": "user", "content": "", long: 1}]}):
        with pytest.raises(ApiError) as caught:
            chat(**more)
        assert len(caught.value.body()) < 500


def test_both_names_of_the_token_limit():
    assert chat(max_completion_tokens=7).max_tokens == 7
    assert chat(max_completion_tokens=7, max_tokens=7).max_tokens == 7
    with pytest.raises(ApiError, match="differ"):
        chat(max_completion_tokens=7, max_tokens=8)
    assert completion().max_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "wanted"), [("a", "a"), (["a"], "a"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([], ())]
)
def test_prompts(prompt, wanted):
    assert completion(prompt=prompt).prompt == wanted


@pytest.mark.parametrize("prompt", [None, 5, ["a", "b"], [[1], [2]], [1, "a"], [True], {"a": 1}, "\udfff"])
def test_prompts_that_are_none(prompt):
    with pytest.raises(ApiError, match="prompt"):
        completion(prompt=prompt)


def test_messages_come_as_role_and_text():
    asked = parameters.chat(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": "be brief"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                    "name": "x",
                },
                {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None, "reasoning_content": "hm"},
            ],
        },
        {},
    )
    assert asked.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab", "name": "x"},
        {"role": "assistant", "content": "c", "reasoning_content": "hm"},
    )


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hi", "messages[0]"),
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": ["user"], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "\ud800"}, "messages[0].content"),
        ({"role": "user", "content": "x", "color": 1}, "messages[0].color"),
        ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
        ({"role": "assistant", "content": "x", "tool_calls": False}, "messages[0].tool_calls"),
        ({"role": "assistant", "content": "x", "audio": 0}, "messages[0].audio"),
        ({"role": "assistant", "content": "x", "refusal": "no"}, "messages[0].refusal"),
    ],
)
def test_a_message_at_fault_is_placed(message, place):
    with pytest.raises(ApiError) as caught:
        parameters.chat({"model": "m", "messages": [message]}, {})
    assert caught.value.param == place


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "messages",
        "prompt",
        "model",
        "stop",
        "stream",
        "stream_options",
        "seed",
        "top_k",
        "n",
        "tools",
        "chat_template_kwargs",
        "x",
    ]
)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_object_is_understood_or_refused(body):
    for parse, base in ((parameters.chat, HELLO), (parameters.completion, PLAIN)):
        refused = []
        try:
            parse({**base, **body}, {})
        except ApiError as problem:
            refused.append(problem)
        assert all(problem.status == 400 and problem.param for problem in refused)
