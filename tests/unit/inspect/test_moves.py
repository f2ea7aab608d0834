"""What `pih lock` says that moved, and why."""

import attrs
import pytest

from pih import profile
from pih.inspect.moves import Move, moves
from pih.lock import Device, Permissions
from tests.support.shipped import LOCK, PROFILE, ROOT

NONE = frozenset()


def line(section, key):
    return profile.load(PROFILE).reason(ROOT, section, key)


def moved(after, before=LOCK, upgraded=NONE):
    return {move.name: move for move in moves(before, after, line, upgraded)}


def with_artifact(name, **changes):
    changed = tuple(attrs.evolve(item, **changes) if item.name == name else item for item in LOCK.artifacts)
    return attrs.evolve(LOCK, artifacts=changed)


def test_the_same_lock_moves_nothing():
    assert moves(LOCK, LOCK, line, NONE) == ()


def test_a_first_lock_lists_its_plugins_and_artifacts_with_reasons():
    found = moved(LOCK, before=None)
    assert found.keys() == {plugin.id for plugin in LOCK.plugins} | {item.name for item in LOCK.artifacts}
    assert all(move.before == "" and move.after and ".toml:" in move.why for move in found.values())


def test_a_limit_moves_on_the_profiles_word_and_the_memory_follows():
    after = attrs.evolve(
        LOCK,
        limits=attrs.evolve(LOCK.limits, context=1024),
        budget=attrs.evolve(LOCK.budget, kv=LOCK.budget.kv - 2**20, total=LOCK.budget.total - 2**20),
    )
    found = moved(after)
    assert found["limits.context"] == Move("limits.context", "2048", "1024", line("limits", "context"))
    assert found["memory"].why == "difference: kv -1.0 MiB"
    assert found.keys() == {"limits.context", "memory"}


def test_target_memory_is_named_as_in_the_profile():
    found = moved(attrs.evolve(LOCK, target=attrs.evolve(LOCK.target, memory_bytes=2**30)))
    assert found["target.memory_bytes"].why == line("target", "memory")


def test_another_checkpoint():
    weights = LOCK.model["weights"] | {"source": "file:other.gguf"}
    found = moved(attrs.evolve(LOCK, model=LOCK.model | {"weights": weights}))
    assert (found["model.weights"].after, found["model.weights"].why) == ("file:other.gguf", line("model", "weights"))


def test_what_is_not_asked_for_any_more():
    kept = tuple(plugin for plugin in LOCK.plugins if plugin.id != "health/probe")
    found = moved(attrs.evolve(LOCK, plugins=kept))
    assert (found["health/probe"].after, found["health/probe"].why) == ("", "nothing asks for it any more")


def test_a_plugin_of_another_version():
    newer = tuple(attrs.evolve(item, version="9") if item.id == "memory/paged" else item for item in LOCK.plugins)
    after = attrs.evolve(LOCK, plugins=newer)
    assert moved(after)["memory/paged"].after == "9"
    assert moved(after, upgraded=frozenset(["memory/paged"]))["memory/paged"].why == "asked for by --upgrade"


def test_a_plugin_with_another_manifest():
    listening = attrs.evolve(LOCK.plugins[0].permissions, network="listen")
    wider = tuple(
        attrs.evolve(item, permissions=listening) if item.id == "memory/paged" else item for item in LOCK.plugins
    )
    found = moved(attrs.evolve(LOCK, plugins=wider))["memory/paged: permissions"]
    assert (found.before, found.after) == ("", "listen on a port")
    assert found.why == "it now asks for listen on a port"
    assert moved(LOCK, before=attrs.evolve(LOCK, plugins=wider))[found.name].why == "it asks for less"


def changed(lock=LOCK, **about):
    """The lock with another memory plugin."""
    return attrs.evolve(
        lock, plugins=tuple(attrs.evolve(i, **about) if i.kind == "memory" else i for i in lock.plugins)
    )


@pytest.mark.parametrize("version", ["0.1.0", "9.0.0"])
def test_each_thing_that_a_user_relies_on_is_told_by_itself(version):
    """Whether or not the version moves too."""
    before = changed(source="catalog vendor", trust="ed25519:a", licence="MIT")
    paths = Permissions("none", ("/dev/kmsg",), ("/root/.ssh",), ())
    after = changed(
        before, version=version, manifest="0" * 64, trust="ed25519:b", licence="GPL-3.0-only", permissions=paths
    )
    found = moved(after, before=before)
    one = "memory/paged"
    assert (found[f"{one}: trust"].before, found[f"{one}: trust"].after) == ("ed25519:a", "ed25519:b")
    assert (found[f"{one}: licence"].before, found[f"{one}: licence"].after) == ("MIT", "GPL-3.0-only")
    assert found[f"{one}: permissions"].after == "/dev/kmsg, /root/.ssh"
    assert (one in found) == (version != "0.1.0")


def test_a_new_plugin_from_outside_says_whose_it_is_and_what_it_may_reach():
    outside = changed(
        source="catalog vendor", trust="ed25519:a", permissions=Permissions("none", ("/dev/npu0",), (), ())
    )
    for before in (None, attrs.evolve(LOCK, plugins=tuple(item for item in LOCK.plugins if item.kind != "memory"))):
        found = moved(outside, before=before)
        assert found["memory/paged: trust"].after == "ed25519:a"
        assert found["memory/paged: permissions"].after == "/dev/npu0"


def test_a_plugin_that_says_something_else_in_what_a_lock_does_not_repeat():
    other = tuple(attrs.evolve(item, manifest="0" * 64) if item.kind == "memory" else item for item in LOCK.plugins)
    assert moved(attrs.evolve(LOCK, plugins=other))["memory/paged"].why == "its plugin.toml has other constraints"


def test_a_plugin_from_another_place():
    local = {"source": "../npu", "trust": "local", "artifact": "plugin/memory/paged"}
    other = tuple(attrs.evolve(item, **local) if item.kind == "memory" else item for item in LOCK.plugins)
    found = moved(attrs.evolve(LOCK, plugins=other))["memory/paged: trust"]
    assert (found.before, found.after) == ("built-in", "local")
    assert found.why == "from ../npu, unsigned, trusted by the profile"


def test_a_device_is_named_as_in_the_profile():
    device = Device(count=1, sm="sm_89", memory_bytes=2**34, driver="")
    found = moved(attrs.evolve(LOCK, target=attrs.evolve(LOCK.target, device=device)))
    assert (found["device.count"].before, found["device.count"].after) == ("0", "1")
    assert found["device.memory_bytes"].why == line("device", "memory")
    assert "device.driver" not in found


@pytest.mark.parametrize(
    ("upgraded", "why"), [(NONE, "surface/openai imports it"), (frozenset(["uvicorn"]), "asked for by --upgrade")]
)
def test_an_artifact_of_another_version(upgraded, why):
    found = moved(with_artifact("uvicorn", version="9", sha256="9" * 64), upgraded=upgraded)
    assert found.keys() == {"uvicorn"}
    assert found["uvicorn"].after == "9"
    assert found["uvicorn"].why.endswith(why)


def test_a_plugin_whose_files_changed_is_told_by_digest():
    after = with_artifact("ziglang", kind="plugin", sha256="9" * 64)
    before = with_artifact("ziglang", kind="plugin")
    found = moved(after, before=before)["ziglang"]
    assert found.after.endswith(", sha256:999999999999")
    assert found.why == "the plugin's files changed"


def test_other_kernels_and_another_plan():
    after = attrs.evolve(LOCK, bindings=LOCK.bindings[1:], plan=attrs.evolve(LOCK.plan, calls=1))
    found = moved(after)
    assert found["kernels"].why == "0 come, 1 go: the plan calls others"
    assert found["plan"].after.startswith("1 calls, sha256:")


def test_a_change_that_is_no_decision_is_named_all_the_same():
    found = moves(LOCK, with_artifact("uvicorn", reasons=("profiles/x.toml:99 features.openai = true",)), line, NONE)
    assert [move.name for move in found] == ["artifacts"]
