"""A tiny CUDA deployment, built by the program as any other, and the software GPU that runs its cubin."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pih.build import interpreter, store
from pih.bundle import layout
from pih.bundle.unpack import unpack
from pih_steps import cubin
from tests.integration.worker.toy_bundle import tokenizer
from tests.support import checkpoints, simgpu
from tests.support.program import ROOT, pih
from tests.support.workers import Worker

CHANGES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 400,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
PROFILE = """
[deployment]
name = "tiny-cuda"
[model]
plugin = "qwen3"
weights = "file:model.safetensors"
config = "file:config.json"
tokenizer = "file:tokenizer.json"
chat_template = "file:chat_template.jinja"
generation = "file:generation_config.json"
[target]
os = "linux"
arch = "x86_64"
isa = "x86-64-v3"
memory = "4 GiB"
threads = 2
[device]
count = 1
sm = "sm_89"
memory = "23 GiB"
driver = "580.65.06"
[limits]
context = 256
batch = 4
tokens = 64
kv_dtype = "bf16"
[features]
openai = true
health = true
[service]
model_name = "tiny"
[weights]
delivery = "embed"
[backend]
plugin = "cuda"
[kernels]
fallback = "forbid"
"""


@pytest.fixture(scope="session")
def deployment(tmp_path_factory):
    """The folder of the profile: the model's files lie beside it, seeded weights among them."""
    folder = tmp_path_factory.mktemp("tiny-cuda")
    shutil.copy(ROOT / "models/qwen3-0.6b/chat_template.jinja", folder)
    config = json.loads((ROOT / "models/qwen3-0.6b/config.json").read_bytes()) | CHANGES
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    tokenizer().save(str(folder / "tokenizer.json"))
    table = {name: {"dtype": "BF16", "shape": list(shape)} for name, shape in checkpoints.qwen3_shapes(config).items()}
    checkpoints.write(folder / "model.safetensors", table, scale=0.4)
    (folder / "tiny-cuda.toml").write_text(PROFILE)
    graphs = PROFILE.replace('"tiny-cuda"', '"tiny-graphs"').replace(
        'plugin = "cuda"', 'plugin = "cuda"\ngraphs = true'
    )
    (folder / "tiny-graphs.toml").write_text(graphs)
    return folder


@pytest.fixture(scope="session")
def image(deployment):
    """The image layout that `pih build` makes of it."""
    return built(deployment, "tiny-cuda")


def built(deployment, name):
    made = json.loads(pih("build", "--profile", deployment / f"{name}.toml", "--json").stdout)
    return layout.read(Path(made["layout"]))


@pytest.fixture(scope="session")
def root(image):
    """The image's root folder, unpacked as `pih run` does."""
    return unpacked(image)


def unpacked(image):
    return unpack(image, store.open_store(store.default_root(os.environ)))


@pytest.fixture(scope="session")
def gpu(deployment, root, tmp_path_factory):
    """driver: the folder of libcuda.so.1; modules: that with the image's cubin for it. whole: of one that has both."""
    folder = tmp_path_factory.mktemp("simgpu")
    lock = json.loads((deployment / "tiny-cuda.lock.json").read_bytes())
    bindings = next(step for step in lock["build"]["steps"] if step["id"] == "kernels")["params"]["bindings"]
    text = cubin.source(bindings)
    digest = hashlib.sha256((root / "pih/kernels/pack.cubin").read_bytes()).hexdigest()
    modules = folder / "modules"
    modules.mkdir()
    (modules / f"{digest}.so").symlink_to(simgpu.module(folder, text))
    return SimpleNamespace(driver=simgpu.driver(folder), modules=modules, whole=simgpu.driver(folder, text))


@pytest.fixture
def launch(root, gpu, tmp_path):
    """Starts workers of the unpacked bundle on the software GPU, with further settings of it, and ends them."""
    workers = []

    def started(library=None, root=root, **settings):
        program = interpreter.command(root)
        program[2] += f":{library or gpu.driver}"
        held = {"log": tmp_path / "simgpu.log", **settings}
        environment = {"PIH_SIMGPU": simgpu.settings(gpu.modules, **held), "PATH": "/usr/bin"}
        listen = ("--listen", "127.0.0.1:0")
        workers.append(Worker([*program, str(root / "usr/bin/pih-worker"), *listen], environment))
        return workers[-1]

    yield started
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


@pytest.fixture
def starts(root, gpu, tmp_path):
    """Start and stop the bundle's backend once for each of these settings: [(outcome, the software GPU's log)]."""

    def all_of(*settings, bundle=root / "pih"):
        program = interpreter.command(root)
        program[2] += f":{gpu.driver}"
        logs = [tmp_path / f"{number}.log" for number in range(len(settings))]
        values = [simgpu.settings(gpu.modules, log=log, **more) for log, more in zip(logs, settings, strict=True)]
        script = Path(__file__).with_name("starting.py")
        done = subprocess.run(
            [*program, script, str(bundle)], input=json.dumps(values), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [
            (outcome, log.read_text() if log.exists() else "")
            for outcome, log in zip(json.loads(done.stdout), logs, strict=True)
        ]

    return all_of
