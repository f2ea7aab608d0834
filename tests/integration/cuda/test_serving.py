"""The bundle's own worker, as it lies in the image, on the software GPU: through the openai client."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pih_runtime.plan import Limits
from pih_steps.lower import sources
from tests.integration.worker.toy_bundle import tokenizer
from tests.support.waiting import until
from tests.truth import models
from tests.truth.drive import Driver, Part

WORDS = tokenizer()
NEW = 12
STOPS = (0, 2)
CLEAR = 0.01  # between the two largest logits, whose deviation is 0.4: more than bf16 takes from them


@pytest.fixture(scope="module")
def answers(deployment):
    """Prompt → text by backend/torch with the same checkpoint, where every new id is a clear choice."""
    source = {"format": "safetensors", "files": [{"artifact": "weights"}], "config": {"artifact": "config"}}
    paths = {"weights": deployment / "model.safetensors", "config": deployment / "config.json"}
    found = {}
    with sources.opened(source, paths, {}) as checkpoint:
        driver = Driver(models.torch_backend(checkpoint, models.graph_of("qwen3"), Limits(64, 4, 256)))
        for number in range(24):
            prompt = " ".join(["the sun", "one", "sea", "hello", "and"][number % 4 : number % 4 + 1 + number // 8])
            prompt += " x" * (number % 3)
            ids = WORDS.encode(prompt, add_special_tokens=False).ids
            prefix, gaps = len(ids), []
            for _ in range(NEW):
                start = len(ids) - 1 if len(ids) > prefix else 0
                (token,), (logits,) = driver.step([Part(0, start, ids[start:])])
                gaps.append(np.diff(np.sort(logits)[-2:])[0])
                if token in STOPS:
                    break
                ids.append(token)
            if min(gaps) > CLEAR:
                found[prompt] = WORDS.decode(ids[prefix:])
    return found


def completed(client, prompt, **more):
    options = {"max_tokens": NEW, "temperature": 0, **more}
    return client.completions.create(model="tiny", prompt=prompt, **options)


def test_its_texts_are_the_oracles_alone_and_in_company(launch, answers):
    assert len(answers) >= 6
    assert len(set(answers.values())) >= 6
    worker = launch()
    worker.wait_for("ready in")
    client = worker.client()
    for prompt, text in answers.items():
        assert completed(client, prompt).choices[0].text == text
    with ThreadPoolExecutor(len(answers)) as pool:
        together = pool.map(lambda prompt: completed(client, prompt).choices[0].text, answers)
        assert list(together) == list(answers.values())
    assert worker.end()[0] == 0


def test_it_chats_streams_cancels_and_drains(launch, tmp_path):
    hold = tmp_path / "hold"
    worker = launch(hold=hold)
    line = worker.wait_for("backend/cuda:")
    assert "simgpu 0 (sm_89), sm_89, CUDA 13.0" in line
    worker.wait_for("ready in")
    client = worker.client()
    options = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}
    whole = client.chat.completions.create(**options, max_tokens=NEW)
    assert whole.usage.completion_tokens == NEW
    chunks = list(client.chat.completions.create(**options, max_tokens=NEW, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert len(chunks) > 3

    stream = client.chat.completions.create(**options, max_tokens=240, stream=True)
    next(iter(stream))
    stream.close()
    until(lambda: not worker.metrics()["pih_requests_running"])
    until(lambda: not worker.pages_in_use())
    assert worker.metrics()["pih_generated_tokens_total"] < 2 * NEW + 240

    hold.touch()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.chat.completions.create, **options, max_tokens=NEW)
        until(lambda: worker.metrics()["pih_requests_running"])
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("stopping:")
        assert worker.get("/health/ready").status_code == 503
        hold.unlink()
        assert asked.result().choices[0].finish_reason == "length"
    assert worker.end()[0] == 0
    assert (tmp_path / "simgpu.log").read_text() == "simgpu: context released, 0 things not given back\n"


def test_nothing_of_cuda_is_in_the_image_but_its_own_cubin(root):
    lines = json.loads((root / "pih/bundle.json").read_bytes())["files"]
    names = [line["path"].rpartition("/")[2] for line in lines]
    assert not [name for name in names if name.startswith(("libcu", "libnv", "libnccl", "torch", "numpy"))]
    assert [line["path"] for line in lines if line["path"].startswith("/pih/kernels/")] == [
        "/pih/kernels/pack.cubin",
        "/pih/kernels/pack.json",
    ]
    # what the driver's own library is linked with
    assert {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"} <= set(names)
