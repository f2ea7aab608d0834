"""The tree of decisions, of a shipped profile."""

import attrs
import pytest

from pih import lock as locks
from pih import profile
from pih.inspect import explain, overview, reasons
from tests.support.shipped import LOCK, PROFILE, ROOT


@pytest.fixture(scope="module")
def found():
    return explain.explanation(LOCK, profile.load(PROFILE), ROOT)


def lines(branch, depth=0):
    yield depth, branch.text
    for below in branch.below:
        yield from lines(below, depth + 1)


def test_every_capability_of_the_lock_has_its_provider_and_ends_at_a_line(found):
    provided = {name for plugin in LOCK.plugins for name in plugin.provides}
    assert {choice.capability for choice in found.choices} == provided
    for choice in found.choices:
        assert choice.chains
        assert all(reasons.is_profile_line(chain[0]) for chain in choice.chains)


def test_every_leaf_below_capabilities_and_artifacts_is_a_profile_line_or_says_where_to_read_on(found):
    parts = {part.text.split(":")[0]: part for part in explain.tree(found).below}

    def leaves(branch):
        return [branch.text] if not branch.below else [leaf for below in branch.below for leaf in leaves(below)]

    for leaf in leaves(parts["capabilities"]) + leaves(parts["artifacts"]):
        assert reasons.is_profile_line(leaf) or "pih why " in leaf


def test_reasons_go_up_from_the_decision_to_the_line(found):
    shown = list(lines(explain.tree(found)))
    at = shown.index((2, "kernels.pack 1.0 → kernels/cpu 0.1.0"))
    line = next(line for line in found.choices if line.capability == "backend.device").chains[0][0]
    assert shown[at + 1 : at + 3] == [(3, "backend/cpu requires kernels.pack >=1.0,<2"), (4, line)]


def test_ops_are_summed_up_by_formats(found):
    linear = next(served for served in found.ops if served.op == "linear")
    assert len(linear.kernels) == sum(binding.op == "linear" for binding in LOCK.bindings) > len(linear.variants)
    assert sum(len(served.kernels) for served in found.ops) == len(LOCK.bindings)


def test_the_budget_is_the_locks(found):
    text = "\n".join(text for _, text in lines(explain.tree(found)))
    assert f"KV cache {LOCK.budget.kv / 2**20:.1f} MiB" in text
    assert "limits.context = 2048" in text
    assert "fallbacks: none" in text


def test_artifacts_that_one_plugin_imports_are_one_group(found):
    names = {group.names for group in found.artifacts}
    assert ("jinja2", "markupsafe", "tokenizers") in names
    assert sorted(name for group in names for name in group) == sorted(item.name for item in LOCK.artifacts)


def test_a_fallback_is_a_line_of_its_own(found):
    slow = attrs.evolve(found, fallbacks=("op attention runs by its scalar reference",))
    parts = [part for part in explain.tree(slow).below if part.text == "fallbacks: 1"]
    assert parts[0].below[0].text == "op attention runs by its scalar reference"


def test_what_is_slow_or_from_outside_is_told():
    npu = {"source": "../npu", "trust": "local", "artifact": "ziglang"}
    plugins = tuple(attrs.evolve(item, **npu) if item.id == "memory/paged" else item for item in LOCK.plugins)
    bindings = tuple(attrs.evolve(item, path="reference") if item.op == "rope" else item for item in LOCK.bindings)
    lock = attrs.evolve(LOCK, plugins=plugins, bindings=bindings)
    shown = list(lines(explain.tree(explain.explanation(lock, profile.load(PROFILE), ROOT))))
    assert (3, "from ../npu, unsigned, trusted by the profile") in shown
    assert any("scalar reference, f32 activations" in text for _, text in shown)


def test_devices_have_a_memory_of_their_own(found):
    sums = attrs.evolve(LOCK.budget, device=3 << 30, device_limit=4 << 30, spill=1 << 20)
    lock = attrs.evolve(LOCK, budget=sums)
    text = "\n".join(text for _, text in lines(explain.tree(attrs.evolve(found, lock=lock))))
    assert "each device: 3072.0 MiB of 4096.0 MiB, 1024.0 MiB to spare" in text
    assert "spill 1.0 MiB" in text
    shown = overview.budget(lock)
    assert "= 3072.0 MiB of 4096.0 MiB on each device; spill 1.0 MiB + host" in shown
    assert shown.endswith(f"= {sums.total / 2**20:.1f} MiB of 512.0 MiB")


def test_json_has_every_decision(found):
    shown = explain.as_json(found)
    assert shown["budget"]["total"] == LOCK.budget.total
    assert {item["capability"] for item in shown["capabilities"]} == {choice.capability for choice in found.choices}
    assert shown["lines"]["target.memory"].endswith('target.memory = "512 MiB"')


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_profile_can_be_explained(path):
    lock = locks.read(locks.path_for(path))
    assert explain.tree(explain.explanation(lock, profile.load(path), ROOT)).below
