"""What a worker does not start with: bundles that are not as sealed, hosts they do not fit, other weights."""

import json
import os
import shutil

import pytest

from pih_runtime import digests
from pih_runtime.canonical import sealed
from tests.integration.worker.toy_bundle import errors, run, seal, weights_file, write_bundle
from tests.support.waiting import PATIENCE


def edit_lock(folder, change):
    path = folder / "pih/lock.json"
    lock = json.loads(path.read_text())
    change(lock)
    path.write_text(json.dumps(sealed(lock)))


def test_a_deployment_of_several_ranks_is_refused_before_anything_starts(tmp_path):
    folder = write_bundle(tmp_path)
    path = folder / "pih/lock.json"
    lock = json.loads(path.read_text())
    lock["target"]["device"] = {"count": 2, "sm": "", "memory_bytes": 1 << 30, "driver": ""}
    path.write_text(json.dumps(sealed(lock)))
    seal(folder / "pih")
    code, text = run(folder)
    assert code == 9
    (line,) = errors(text)
    assert "the deployment has 2 ranks, one for each device, and this worker runs one" in line
    assert "device.count = 1" in text
    assert "listening" not in text


REFUSED = {
    "changed file": (8, "bundle.json says", lambda folder: (folder / "pih/model/text.json").write_text("{}"), False),
    "extra file": (8, "not listed", lambda folder: (folder / "pih/lib/extra.py").write_text(""), False),
    "missing file": (8, "missing", lambda folder: (folder / "pih/plan.json").unlink(), False),
    "no bundle.json": (8, "cannot read", lambda folder: (folder / "pih/bundle.json").unlink(), False),
    "changed weights": (
        8,
        "the header: chunk 0 of the weights, bytes 0 to 384, is not the one",
        lambda folder: (folder / "pih/weights/weights.safetensors").write_bytes(weights_file(data=b"x" * 256)),
        False,
    ),
    "truncated weights": (
        8,
        "the weights have 300 bytes, their digests are of 384",
        lambda folder: os.truncate(folder / "pih/weights/weights.safetensors", 300),
        False,
    ),
    "changed digests": (
        8,
        "weights.digests: is sha256:",
        lambda folder: (folder / "pih/weights.digests").write_text("pih-weights-digests 1\n"),
        False,
    ),
    "no digests": (
        8,
        "does not list the digests of the weights",
        lambda folder: (folder / "pih/weights.digests").unlink(),
        True,
    ),
    "missing weights": (
        9,
        "cannot map the weights",
        lambda folder: (folder / "pih/weights/weights.safetensors").unlink(),
        False,
    ),
    "lock of another schema": (
        5,
        "schema 7",
        lambda folder: edit_lock(folder, lambda lock: lock.update(schema=7)),
        True,
    ),
    "lock edited by hand": (
        5,
        "service.port was changed",
        lambda folder: (folder / "pih/lock.json").write_text(
            (folder / "pih/lock.json").read_text().replace('"port": 0', '"port": 8001')
        ),
        True,
    ),
    "plugin of another ABI": (
        5,
        "ABI 9",
        lambda folder: edit_lock(folder, lambda lock: lock["plugins"][0].update(abi=9)),
        True,
    ),
    "broken plan": (9, "not a plan", lambda folder: (folder / "pih/plan.json").write_text('{"schema": 1}'), True),
    "broken tokenizer": (
        9,
        "not a tokenizer",
        lambda folder: (folder / "pih/model/tokenizer.json").write_text("{}"),
        True,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bundle_that_is_not_as_sealed_or_does_not_fit_is_refused(tmp_path, name):
    wanted, words, damage, sealed = REFUSED[name]
    folder = write_bundle(tmp_path)
    damage(folder)
    if sealed:
        seal(folder / "pih")
    code, text = run(folder, "--listen", "127.0.0.1:0")
    assert code == wanted, text
    assert len(errors(text)) == 1
    assert words in text
    assert "Traceback" not in text


def test_a_host_with_less_memory_than_the_budget_is_refused_with_numbers(tmp_path):
    code, text = run(write_bundle(tmp_path, total=1 << 60), "--listen", "127.0.0.1:0")
    assert code == 9
    assert f"needs {1 << 60} bytes (weights 256 + kv 0" in text


def test_a_plan_that_the_engine_or_the_pool_cannot_serve_is_refused(tmp_path):
    folder = write_bundle(tmp_path / "a", limits={"tokens": 3, "seqs": 4})
    code, text = run(folder, "--listen", f"unix:{tmp_path}/s")
    assert (code, "3 tokens cannot decode 4 sequences" in text) == (9, True)
    folder = write_bundle(tmp_path / "b")
    plan = json.loads((folder / "pih/plan.json").read_text())
    plan["caches"].append({**plan["caches"][0], "name": "other", "page_size": 32})
    (folder / "pih/plan.json").write_text(json.dumps(plan))
    seal(folder / "pih")
    code, text = run(folder, "--listen", f"unix:{tmp_path}/s")
    assert (code, "this pool serves one shape" in text) == (9, True)


def test_a_cpu_without_the_locks_isa_is_refused(tmp_path):
    code, text = run(write_bundle(tmp_path, isa="x86-64-v9"), "--listen", "127.0.0.1:0")
    assert code == 9
    assert "cannot run kernels for x86-64-v9" in text


def test_weights_delivered_apart_are_taken_from_the_mount(tmp_path, launch):
    folder = write_bundle(tmp_path, delivery="separate")
    worker = launch(folder)
    worker.wait_for("ready in")
    assert "weights 384 bytes are not pinned, and no digests lie beside them" in "\n".join(worker.lines)
    assert worker.metrics()['pih_weights_info{delivery="separate",verify="start",digest="",pinned="no"}'] == 1
    worker.end()
    shutil.rmtree(folder / "pih/weights")
    (folder / "pih/weights").mkdir()
    code, text = run(folder, "--listen", "127.0.0.1:0")
    assert (code, "mount the weights at /pih/weights" in text) == (9, True)


def test_pinned_weights_are_checked_and_others_refused(tmp_path, launch):
    folder = write_bundle(tmp_path, delivery="separate", pinned=True)
    worker = launch(folder)
    worker.wait_for("ready in")
    assert "bytes, checked now against sha256:" in "\n".join(worker.lines)
    worker.end()
    packed = weights_file(data=b"x" * 256)
    (folder / "pih/weights/weights.safetensors").write_bytes(packed)
    code, text = run(folder, "--listen", "127.0.0.1:0")
    assert (code, "chunk 0 of the weights" in text) == (8, True)
    table = digests.to_text(digests.table_of(memoryview(packed), digests.SMALLEST))
    (folder / "pih/weights/weights.digests").write_bytes(table)
    code, text = run(folder, "--listen", "127.0.0.1:0")
    assert (code, "the digests of the weights are sha256:" in text) == (8, True)


@pytest.mark.parametrize("delivery", ["embed", "separate"])
def test_at_first_use_a_damaged_tensor_ends_the_worker_and_no_answer_comes_of_it(tmp_path, launch, delivery):
    # Longer than a chunk, so that the header and the tensor's end lie in different ones.
    folder = write_bundle(tmp_path, delivery=delivery, pinned=delivery == "separate", verify="first-use", values=4096)
    path = folder / "pih/weights/weights.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    worker = launch(folder)
    worker.wait_for("ready in")
    assert worker.get("/health/ready").status_code == 200
    answer = worker.post("/v1/completions", json={"model": "toy", "prompt": "b"})
    assert answer.status_code == 500
    assert "tensor 'toy': chunk 4 of the weights, bytes 16384 to 16512" in answer.json()["error"]["message"]
    worker.process.wait(PATIENCE)
    code, text = worker.end()
    assert code == 8
    assert "tensor 'toy': chunk 4 of the weights, bytes 16384 to 16512" in errors(text)[0]


def test_at_first_use_a_worker_answers_as_ever(tmp_path, launch):
    worker = launch(write_bundle(tmp_path, verify="first-use", values=4096))
    worker.wait_for("ready in")
    assert not [line for line in worker.lines if "every chunk checked" in line]
    assert worker.post("/v1/completions", json={"model": "toy", "prompt": "b"}).status_code == 200
    worker.wait_for("weights: every chunk checked")
    assert worker.end()[0] == 0
