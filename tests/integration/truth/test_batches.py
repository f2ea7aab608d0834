"""A sequence's tokens depend neither on how its prompt is cut nor on the company it has in a step."""

from __future__ import annotations

import pytest

from pih_runtime.plan import Limits
from pih_runtime.step import Sampling
from tests.truth import models
from tests.truth.drive import Driver, Part

LIMITS = Limits(tokens=64, seqs=4, context=128)
NEW = 12
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="module", params=["torch", "sm_89", *models.ISAS])
def make(request):
    """A function: model → a driver of this backend, stopped at the end."""
    if request.param == "torch":
        factory = models.torch_backend
    elif request.param == "sm_89":
        factory = models.cuda_backend(request.param, request.getfixturevalue("gpu"))
    elif models.host_has(request.param):
        factory = models.cpu_backend(request.param)
    else:
        pytest.skip(f"this CPU lacks {request.param}")
    running = []

    def driver(model):
        running.append(factory(model.checkpoint, model.graph, LIMITS))
        return Driver(running[-1])

    yield driver
    for backend in running:
        backend.stop()


@pytest.fixture(scope="module")
def driver(make, tiny):
    return make(tiny)


@pytest.fixture(scope="module")
def expected(driver, tiny):
    return driver.greedy(tiny.ids[:50], NEW)


@pytest.mark.parametrize(
    "pieces", [[17, 1, 32], [16, 16, 16, 2], [1] * 50, [49, 1]], ids=["uneven", "pages", "single", "last"]
)
def test_a_prompt_in_pieces_gives_the_same_tokens(driver, tiny, expected, pieces):
    assert driver.greedy(tiny.ids[:50], NEW, pieces, slot=1) == expected


def test_a_prompt_in_mixed_company_gives_the_same_tokens(driver, tiny, expected):
    prompt, others = tiny.ids[:50], [tiny.ids[50:57], tiny.ids[57:90]]
    alone = [driver.greedy(other, 4, slot=3) for other in others]
    # Slot 0 decodes throughout, slot 2 prefills while slot 1, the one we watch, comes in two chunks.
    first = driver.step([Part(0, 0, others[0])])[0]
    second = driver.step([Part(0, 7, [-1]), Part(1, 0, prompt[:20])])[0]
    third = driver.step([Part(2, 0, others[1]), Part(0, 8, [-1]), Part(1, 20, prompt[20:40], wanted=())])[0]
    fourth = driver.step([Part(1, 40, prompt[40:]), Part(0, 9, [-1]), Part(2, 33, [-3])])[0]
    rest = list(driver.decode(fourth[0], 50, NEW - 1, slot=1))
    assert [fourth[0], *rest] == expected
    assert [first[0], second[0], third[1], fourth[1]] == alone[0]
    assert [third[0], fourth[2]] == alone[1][:2]


def test_a_draw_depends_on_seed_and_position_alone(driver, tiny):
    prompt = tiny.ids[:30]
    how = Sampling(temperature=1.5, top_k=40, top_p=0.95, min_p=0.01, seed=11)
    alone = driver.step([Part(0, 0, prompt, sampling=how)])[0][0]
    driver.step([Part(1, 0, prompt[:10])])
    company = driver.step([Part(2, 0, tiny.ids[30:50]), Part(1, 10, prompt[10:], sampling=how)])[0][1]
    draws = {driver.step([Part(3, 0, prompt, sampling=Sampling(1.5, 40, 0.95, 0.01, seed))])[0][0] for seed in range(8)}
    assert company == alone
    assert len(draws) > 1


# not on a GPU: the CUDA pack has no kernels for its 4-bit weights, and says so at lock time
@pytest.mark.parametrize("make", ["torch", *models.ISAS], indirect=True)
def test_smollm2_answers_as_in_float32(make, smollm2):
    prompt = smollm2.tokenizer.encode(CHAT, add_special_tokens=False).ids
    assert make(smollm2).greedy(prompt, 8) == [504, 3575, 282, 4649, 314, 7042, 30, 2]
