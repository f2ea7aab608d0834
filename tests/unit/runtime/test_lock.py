"""The worker's view of the lock: what does not hold together is refused before anything is imported."""

import json

import pytest

from pih_runtime import canonical, lock
from pih_runtime.errors import LockError


def plugin(name, provides=(), requires=(), **more):
    return {
        "id": name,
        "version": "1",
        "kind": "x",
        "abi": 1,
        "provides": dict.fromkeys(provides, "1.0"),
        "requires": [{"capability": c, "specifier": ">=1", "provider": p} for c, p in requires],
        "runtime": {"package": "p", "entry": "p:start", "wheels": [], "host_bytes": 0},
        "settings": {"a": 1},
        **more,
    }


def data(*plugins, **more):
    return {
        "schema": 1,
        "pih": "0.1.0",
        "profile": {"name": "toy"},
        "plugins": list(plugins),
        "start_order": [item["id"] for item in plugins if item["runtime"]],
        "fallbacks": ["f"],
        "budget": {"total": 5},
        "service": {"host": "::", "port": 80},
        "target": {"device": None},
        **more,
    }


A = plugin("a", ["x.y"])
B = plugin("b", [], [("x.y", "a"), ("built", "k")])
K = plugin("k", ["built"], runtime=None)


def read(tmp_path, value):
    path = tmp_path / "lock.json"
    path.write_text(value if isinstance(value, str) else json.dumps(canonical.sealed(value)))
    return lock.read(path)


def test_a_lock_is_read_in_start_order_without_build_plugins(tmp_path):
    found = read(tmp_path, data(B, K, A, start_order=["a", "b"]))
    assert [item.id for item in found.plugins] == ["a", "b"]
    assert found.plugins[1].requires == {"x.y": "a", "built": "k"}
    assert found.plugins[0].settings == {"a": 1}
    assert (found.listen, found.fallbacks, found.budget) == (":::80", ("f",), {"total": 5})


@pytest.mark.parametrize(("device", "ranks"), [(None, 1), ({"count": 1}, 1), ({"count": 4}, 4)])
def test_a_deployment_has_a_rank_for_each_device(tmp_path, device, ranks):
    assert read(tmp_path, data(A, target={"device": device})).ranks == ranks


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"schema": ' + "1" * 5000 + "}", "not JSON: a number of 5000 digits is too long"),
        ("[]", "not a lock"),
        ({}, "not a lock: KeyError"),
        (data(A, schema=2), "schema 2 is not 1"),
        (data(A, start_order=[]), "each plugin that runs, once: a"),
        (data(A, start_order=["a", "a"]), "each plugin that runs, once"),
        (data(A, start_order=["a", "z"]), "z"),
        (data(B, A), "b requires x.y of a, which does not give it before"),
        (data(plugin("a"), B), "b requires x.y of a"),
        (data(plugin("a", abi=2)), "a speaks ABI 2, this worker ABI 1"),
        (data(plugin("a", runtime={}), start_order=["a"]), "not a lock"),
    ],
)
def test_what_does_not_hold_together_is_refused(tmp_path, value, words):
    with pytest.raises(LockError, match=words) as caught:
        read(tmp_path, value)
    assert caught.value.exit_code == 5
    assert caught.value.where.endswith("lock.json")


def test_a_lock_is_utf_8_alone(tmp_path):
    (tmp_path / "lock.json").write_bytes(json.dumps(canonical.sealed(data(A))).encode("utf-16"))
    with pytest.raises(LockError, match="not JSON: 'utf-8' codec"):
        lock.read(tmp_path / "lock.json")


def test_a_missing_lock_is_named(tmp_path):
    with pytest.raises(LockError, match="cannot read the lock: No such file"):
        lock.read(tmp_path / "lock.json")
