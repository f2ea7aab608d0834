"""The real model in podman without a network, through the openai client."""

import concurrent.futures

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
MODEL = "smollm2-135m-instruct"


def test_greedy_answer(served):
    reply = served.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    assert reply.choices[0].message.content == ANSWER
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == 8  # seven ids and the one that ends


def test_streamed_answer_with_usage(served):
    stream = served.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == ANSWER
    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 1
    assert chunks[-1].usage.completion_tokens == 8


def test_requests_in_company_give_what_they_give_alone(served):
    prompts = [f"Write one sentence about the number {n}." for n in range(6)]

    def ask(prompt):
        messages = [{"role": "user", "content": prompt}]
        return served.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=40)

    alone = [ask(prompt).choices[0].message.content for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = [reply.choices[0].message.content for reply in pool.map(ask, prompts)]
    assert together == alone


def test_seeded_sampling_repeats_and_seeds_differ(served):
    def ask(seed):
        reply = served.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=1.0, top_p=0.95, seed=seed, max_tokens=30
        )
        return reply.choices[0].message.content

    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in range(5)}) > 1


def test_stop_string_ends_the_text_before_it(served):
    reply = served.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, stop=[" France"])
    assert reply.choices[0].message.content == "The capital of"
    assert reply.choices[0].finish_reason == "stop"


def test_completions_and_models(served):
    assert [model.id for model in served.models.list()] == [MODEL]
    reply = served.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=1, temperature=0)
    assert reply.choices[0].text == " Paris"
    assert reply.choices[0].finish_reason == "length"


def test_a_wrong_model_and_a_wrong_value_are_told(served):
    with pytest.raises(openai.NotFoundError, match="gpt-9"):
        served.chat.completions.create(model="gpt-9", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        served.chat.completions.create(model=MODEL, messages=QUESTION, temperature=-1)


def test_metrics_and_health(served):
    http = served._client
    assert http.get("/health/live").status_code == 200
    assert http.get("/health/ready").status_code == 200
    assert "pih_" in http.get("/metrics").text
