"""The example accelerator: enumeration, pools and collectives of its own; its plugin from the lock to an answer."""

import json
import shutil
import sys
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor

import pytest

from pih.conformance import suite
from pih_runtime.errors import WorkerError
from tests.conformance.test_suite import nothing
from tests.support.program import ROOT, pih

EXAMPLE = ROOT / "examples" / "npu"


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(EXAMPLE / "plugin"))
    yield
    sys.path.remove(str(EXAMPLE / "plugin"))


def test_it_passes_the_suite():
    found = list(suite.check(EXAMPLE / "plugin", ROOT, nothing))
    assert [check for check in found if check.outcome != "passed"] == []
    assert "op: silu_mul reference 20 columns" in {check.name for check in found}


@pytest.mark.parametrize(("text", "indices"), [(None, (0, 1)), ("1", (1,)), ("1, 0", (1, 0))])
def test_devices_are_those_that_its_variable_makes_visible(text, indices):
    from pih_backend_npu.device import VISIBLE, visible

    found = visible({} if text is None else {VISIBLE: text})
    assert tuple(device.index for device in found) == indices


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


def ranks(group, action):
    """What each rank's call returns or raises."""
    found = [None] * group.size

    def run(rank):
        try:
            found[rank] = action(rank)
        except WorkerError as problem:
            found[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(group.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return found


def test_collectives_give_every_rank_the_same_in_order_of_rank():
    from pih_backend_npu.collectives import Group

    group = Group(3)
    for round_ in range(20):  # one after the other: no rank may overtake
        gathered = ranks(group, lambda rank: group.all_gather(rank, [float(rank)] * rank).tolist())
        assert gathered == [[1.0, 2.0, 2.0]] * 3
        big = [1e8, 1.0 + round_, -1e8]
        reduced = ranks(group, lambda rank: group.all_reduce(rank, [big[rank]]).tobytes())  # noqa: B023
        assert len(set(reduced)) == 1


def test_a_rank_that_fails_leaves_none_waiting():
    from pih_backend_npu.collectives import Group

    group = Group(2)
    found = ranks(group, lambda rank: group.abort() if rank else group.all_gather(0, [1.0]))
    assert "another device has failed" in str(found[0])
    uneven = Group(2)
    found = ranks(uneven, lambda rank: uneven.all_reduce(rank, [1.0] * (rank + 1)))
    assert all("all_reduce" in str(problem) for problem in found)


def test_a_linear_gives_the_same_bits_on_any_number_of_devices():
    from pih_backend_npu import sharded
    from pih_backend_npu.collectives import Group

    weight = [array("f", [row * 0.1 + column for column in range(8)]) for row in range(5)]
    x = [memoryview(array("f", [token + column * 0.3 for column in range(8)])) for token in range(3)]
    found = set()
    for size in (1, 2, 3):
        y = [memoryview(array("f", [1.0] * 5)) for _ in x]
        with ThreadPoolExecutor(size) as pool:
            sharded.linear(None, {"accumulate": True}, x, weight, y, group=Group(size), ranks=pool)
        found.add(b"".join(row.tobytes() for row in y))
    assert len(found) == 1


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """The example as a user copies it: beside nothing of PIH's but the model's description."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE / "plugin", folder / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
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


def test_it_answers(locked):
    answer = pih("run", "--profile", locked, "--prompt", "Hello", "--max-tokens", "2").stdout
    assert answer.strip()
