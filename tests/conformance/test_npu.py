# ruff: noqa: E501 - what is broken reads best in one line
"""The example accelerator: enumeration, pools and collectives of its own; its plugin from the lock to an answer."""

import json
import os
import shutil
import sys
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from pih.build.store import default_root, open_store
from pih.bundle import client, layout, run, unpacked
from pih.conformance import suite
from pih_runtime import plan as plans
from pih_runtime.errors import WorkerError
from pih_steps.lower import lower, read_report
from pih_steps.lower.pack import packed_chunks
from pih_steps.lower.shares import share
from tests.conformance.checks import found, nothing
from tests.support import ports
from tests.support.program import ROOT, pih
from tests.support.waiting import PATIENCE
from tests.truth.drive import Driver, Part
from tests.truth.models import TINY_QWEN3, graph_of, qwen3_checkpoint

EXAMPLE = ROOT / "examples" / "npu"


@pytest.fixture(scope="module", autouse=True)
def importable():
    own = [str(EXAMPLE / part) for part in ("plugin", "transport")]
    sys.path[:0] = own
    yield
    for path in own:
        sys.path.remove(path)


def test_it_passes_the_suite():
    checks = list(suite.check(EXAMPLE / "plugin", ROOT, nothing))
    assert [check for check in checks if check.outcome != "passed"] == []
    assert "op: silu_mul reference 20 columns" in {check.name for check in checks}


# Right in what is small: (file, what it says, what it says then), and the check that must fail.
SMALL = {
    "the last positions alone": ("kernels.py", "slots, head //", "slots[-500:], head //", "op: attention 2 heads, 1 kv heads of 16, cache f32"),
    "the first pages alone": ("kernels.py", "pages[p // size]", "pages[min(p // size, 30)]", "op: attention 4 heads, 2 kv heads of 16, cache bf16"),
    "no running maximum": ("kernels.py", "higher = max(top, score)", "higher = 0.0", "op: attention 2 heads, 2 kv heads of 16, cache f32, large values"),
    "an output held to few": ("kernels.py", "[value / total for", "[max(-3.0, min(3.0, value / total)) for", "op: attention 2 heads, 2 kv heads of 16, cache f32, large values"),
    "one scale for all": ("kernels.py", 'attrs["scale"] * value', "value / math.sqrt(dim)", "op: attention 4 heads, 2 kv heads of 16, cache bf16"),
    "angles that end": ("ops.py", "[position * frequency", "[min(position, 600) * frequency", "op: rope_table f32 32 columns"),
    "the first tokens alone": ("ops.py", "target[:] = x[row]", "target[:] = x[min(row, 40)]", "op: gather 20 columns"),
    "the first rows alone": ("ops.py", "zip(y, batch.step.rows, strict=True)", "zip(y, batch.step.rows[:10])", "op: gather 20 columns"),
    "the first draws alone": ("ops.py", "    return [_one(*item) for", "    positions[10:] = [0] * len(positions[10:])\n    return [_one(*item) for", "op: sample 32 logits"),
}  # fmt: skip


@pytest.mark.parametrize("sort", SMALL)
def test_what_is_right_in_small_cases_alone_fails(sort, tmp_path):
    file, old, text, failing = SMALL[sort]
    folder = shutil.copytree(EXAMPLE / "plugin", tmp_path / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "pih_backend_npu" / file
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, text))
    assert found(folder, failing).outcome == "failed"


@pytest.mark.parametrize(("text", "indices"), [(None, (0, 1)), ("1", (1,)), ("1, 0", (1, 0))])
def test_devices_are_those_that_its_variable_makes_visible(text, indices):
    from pih_backend_npu.device import VISIBLE, visible

    devices = visible({} if text is None else {VISIBLE: text})
    assert tuple(device.index for device in devices) == indices


@pytest.mark.parametrize("text", ["", "2", "0,0", "-1", "all"])
def test_devices_that_are_not_there_are_an_error(text):
    from pih_backend_npu.device import VISIBLE, visible

    with pytest.raises(WorkerError, match=VISIBLE):
        visible({VISIBLE: text})


def test_a_pool_counts_granules_and_refuses_what_it_has_not():
    from pih_backend_npu.device import Pool

    pool = Pool(1024)
    assert len(pool.take(300, "a")) == 300
    assert (pool.used, pool.peak) == (512, 512)
    with pytest.raises(WorkerError, match="no device memory for b"):
        pool.take(513, "b")
    pool.give_back(300)
    pool.take(1024, "c")
    assert (pool.used, pool.peak) == (1024, 1024)


@pytest.fixture
def free_port():
    return ports.free_port()


def two_ranks(transport, action):
    """What `action` gives for each rank of a transport, on a thread of its own; who fails tells the others."""

    def run(rank):
        try:
            return action(rank)
        except BaseException as problem:
            transport.abort(repr(problem))
            raise

    with ThreadPoolExecutor(transport.size) as pool:
        return list(pool.map(run, range(transport.size)))


def test_unlike_operations_are_an_error_on_every_rank():
    from pih_transport_npu.transport import Transport

    transport = Transport(2)
    memory = memoryview(bytearray(64))

    def run(rank):
        end = transport.join(rank)
        with pytest.raises(WorkerError, match="unlike operations: all_reduce 1 f32, all_reduce 2 f32"):
            end.all_reduce(memory, memory, rank + 1, "f32")

    two_ranks(transport, run)


def test_sums_of_whole_numbers_wrap():
    from pih_transport_npu import values

    parts = [array("i", [2**31 - 1, -5]).tobytes(), array("i", [1, 3]).tobytes()]
    assert array("i", values.sums(parts, "i32")).tolist() == [-(2**31), -2]


def test_two_ranks_compute_what_one_does():
    """Each rank starts the whole plugin with the transport as its worker would, over its shares of the weights."""
    import pih_backend_npu
    from pih_transport_npu.transport import Transport

    from pih.conformance.standins import context, providers

    checkpoint, needs = qwen3_checkpoint(TINY_QWEN3), ("platform.host", "storage.weights", "transport.collectives")
    report = read_report(EXAMPLE / "plugin", "x86-64-v3")

    def logits(rank, ranks, transport, root):
        plan = lower(
            checkpoint, graph_of("qwen3"), report, plans.Limits(8, 2, 32), "f32", fallbacks=["silu_mul"], ranks=ranks
        ).plan
        stored = {
            weight.stored(each): b"".join(packed_chunks(weight, share(weight, checkpoint, each, ranks)))
            for weight in plan.weights
            for each in range(ranks)
        }
        (root / f"{rank}").mkdir(exist_ok=True)
        (root / f"{rank}" / "plan.json").write_text(plans.to_json(plan))
        served = {**providers(plan, stored), "transport.collectives": transport}
        plain = context(root / f"{rank}", "x86-64-v3", needs, served)
        lock = {**plain.lock, "target": {**plain.lock["target"], "device": {"count": ranks}}}
        backend = pih_backend_npu.start(replace(plain, rank=rank, lock=lock))
        try:
            driver = Driver(backend)
            ids, first = driver.step([Part(0, 0, [5, 9, 2, 7]), Part(1, 0, [3])])
            return np.concatenate([first, driver.step([Part(0, 4, [-1]), Part(1, 1, [-2])])[1]]), ids
        finally:
            backend.stop()

    with pytest.MonkeyPatch().context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("pih_backend_npu.device._PRESENT", 2)
        alone, ids = logits(0, 1, None, Path(folder))
        transport = Transport(2)
        one, other = two_ranks(transport, lambda rank: logits(rank, 2, transport, Path(folder)))
    np.testing.assert_array_equal(one[0], other[0])
    assert one[1] == other[1] == ids
    np.testing.assert_allclose(one[0], alone, rtol=0, atol=2e-5 * np.abs(alone).max())


def test_a_rank_without_a_device_of_its_own_is_refused():
    from pih_backend_npu.device import assigned, visible

    assert assigned(visible({"NPU_VISIBLE_DEVICES": "1,0"}), 1).index == 0
    with pytest.raises(WorkerError, match="rank 1 has no device: 1 are visible"):
        assigned(visible({"NPU_VISIBLE_DEVICES": "1"}), 1)


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """The example as a user copies it: beside nothing of PIH's but the model's description."""
    folder = tmp_path_factory.mktemp("example")
    for part in ("plugin", "transport"):
        shutil.copytree(EXAMPLE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    text = (EXAMPLE / "npu.toml").read_text().replace("file:../../models", f"file:{ROOT}/models")
    (folder / "npu.toml").write_text(text)
    pih("lock", "--profile", folder / "npu.toml")
    return folder / "npu.toml"


def test_its_lock_says_on_whose_word_and_what_falls_back(locked):
    lock = json.loads(locked.with_name("npu.lock.json").read_bytes())
    plugin = next(item for item in lock["plugins"] if item["id"] == "backend/npu")
    assert plugin["trust"] == "local"
    assert len(lock["fallbacks"]) == 1
    assert "silu_mul_reference" in lock["fallbacks"][0]
    assert {"npu_rms_norm", "npu_attention"} <= {item["symbol"] for item in lock["bindings"]}


def test_without_the_gap_s_leave_it_is_refused(locked):
    other = locked.with_name("strict.toml")
    text = locked.read_text().replace('fallback = "allow"', 'fallback = "forbid"')
    other.write_text(text.replace('fallback_ops = ["silu_mul"]', ""))
    refused = pih("lock", "--profile", other, check=False)
    assert refused.returncode == 4
    assert "silu_mul" in refused.stderr
    assert "fallback_ops" in refused.stderr


def test_a_plugin_of_pih_s_name_is_refused_although_pih_s_own_would_serve(locked):
    folder = shutil.copytree(locked.with_name("plugin"), locked.with_name("cpu"))
    text = (folder / "plugin.toml").read_text()
    (folder / "plugin.toml").write_text(text.replace('"backend/npu"', '"backend/cpu"'))
    other = locked.with_name("taken.toml")
    text = locked.read_text().replace('plugin = "npu"', 'plugin = "cpu"').replace('path = "plugin"', 'path = "cpu"')
    other.write_text(text.replace('fallback = "allow"', "").replace('fallback_ops = ["silu_mul"]', ""))
    refused = pih("lock", "--profile", other, check=False)
    assert refused.returncode == 4
    assert "backend/cpu 0.1.0 (cpu) is refused: that id is a plugin of PIH's own" in refused.stderr
    place = next(line for line, text in enumerate(other.read_text().splitlines(), 1) if text == "[[plugins]]")
    assert f"taken.toml:{place}: " in refused.stderr
    assert not other.with_name("taken.lock.json").exists()


DEVICES = '\n[device]\ncount = {}\nmemory = "256 MiB"\n'


def lock_of(profile, text):
    profile.write_text(text)
    pih("lock", "--profile", profile)
    return json.loads(profile.with_suffix(".lock.json").read_bytes())


def test_one_device_has_no_transport_and_two_have_the_vendor_s(locked):
    plain = json.loads(locked.with_name("npu.lock.json").read_bytes())
    one = lock_of(locked.with_name("one.toml"), locked.read_text() + DEVICES.format(1))
    for lock in (plain, one):
        assert "transport" not in {plugin["kind"] for plugin in lock["plugins"]}
        assert "transport" not in json.dumps([lock["artifacts"], lock["build"], lock["start_order"]])
    two = lock_of(locked.with_name("two.toml"), locked.read_text() + DEVICES.format(2))
    (transport,) = [plugin for plugin in two["plugins"] if plugin["kind"] == "transport"]
    assert transport["id"] == "transport/npu"
    assert transport["reasons"] == [f"two.toml:{len(locked.read_text().splitlines()) + 3} device.count = 2"]
    order = two["start_order"]
    assert order.index("transport/npu") < order.index("backend/npu")
    named = lock_of(locked.with_name("named.toml"), locked.read_text() + '\n[transport]\nplugin = "npu"\n')
    assert "transport/npu" in named["start_order"]


def test_several_devices_without_a_transport_are_refused(locked):
    other = locked.with_name("none.toml")
    text = locked.read_text()
    cut = text.index("# Chosen where device.count")
    other.write_text(text[:cut] + DEVICES.format(2))
    refused = pih("lock", "--profile", other, check=False)
    assert refused.returncode == 4
    assert "device.count = 2" in refused.stderr
    assert "nothing serves transport.collectives" in refused.stderr


def test_it_answers_on_the_device_that_its_variable_names(locked):
    """The variable reaches the worker, where a name that is wrong ends the start in the plugin's own words."""
    ask = ("run", "--profile", locked, "--prompt", "Hello", "--max-tokens", "2")
    assert pih(*ask, environment={"NPU_VISIBLE_DEVICES": "1"}).stdout.strip()
    wrong = pih(*ask, environment={"NPU_VISIBLE_DEVICES": "7"}, check=False)
    assert wrong.returncode == 9
    assert "NPU_VISIBLE_DEVICES=7 names '7'" in wrong.stderr
    assert wrong.stdout == ""


@pytest.fixture(scope="module")
def image(locked):
    """The vendor's image as its operator has it: a layout, without the profile beside it."""
    return Path(json.loads(pih("build", "--profile", locked, "--json").stdout)["layout"])


def test_its_image_is_explained_to_the_vendor_s_last_file(locked, image):
    from pih.inspect.opened import opened

    said = pih("why", "backend/npu", image).stdout
    assert "npu.toml" in said
    assert 'backend.plugin = "npu"' in said
    held = opened(image)
    for file in held.contents.files:
        if "pih_backend_npu" in file.path:
            assert 'backend.plugin = "npu"' in pih("why", file.path, image).stdout
            break
    else:
        raise AssertionError("none of its files is in the image")
    assert not [file.path for file in held.contents.files if "pih_transport" in file.path]
    assert "silu_mul" in pih("why", "silu_mul_reference", image).stdout
    shown = pih("inspect", image).stdout
    assert "$NPU_VISIBLE_DEVICES" in shown
    assert "silu_mul_reference" in next(line for line in shown.splitlines() if line.startswith("fallbacks"))
    rows = {row["id"]: row for row in json.loads(pih("inspect", image, "--json").stdout)["plugins"]}
    assert rows["backend/npu"]["trust"] == "local"
    assert rows["backend/npu"]["permissions"]["environment"] == ["NPU_VISIBLE_DEVICES"]
    tree = pih("explain", "--profile", locked).stdout
    assert "backend/npu: $NPU_VISIBLE_DEVICES" in tree
    assert "npu_attention" in tree
    assert "fallbacks: 1" in tree


def test_its_fallback_runs_in_a_worker_and_is_told(image, free_port):
    """The log at start and /metrics name it; the answer needs it, as every layer calls silu_mul."""
    plan = json.loads(layout.member(layout.read(image), "pih/plan.json"))
    assert [call["symbol"] for call in plan["calls"] if call["op"] == "silu_mul"]
    assert {call["symbol"] for call in plan["calls"] if call["op"] == "silu_mul"} == {"silu_mul_reference"}
    own = open_store(default_root(os.environ))
    with tempfile.NamedTemporaryFile("w+") as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "sys", SimpleNamespace(stderr=log))
        with unpacked.started(layout.read(image), own, run.Public("127.0.0.1", free_port), None) as worker:
            client.wait_ready(worker.address, worker.alive, PATIENCE)
            body = {"model": "npu-example", "prompt": "Hello", "max_tokens": 2}
            answer = httpx.post(f"http://{worker.address}/v1/completions", json=body, timeout=PATIENCE).json()
            metrics = httpx.get(f"http://{worker.address}/metrics", timeout=PATIENCE).text
        said = Path(log.name).read_text()
    assert answer["usage"]["completion_tokens"] == 2
    assert "fallback silu_mul" in said
    assert "silu_mul_reference" in next(line for line in metrics.splitlines() if line.startswith("pih_fallback_info{"))
