"""The solver: what it prefers, that it misses nothing, and the words of every conflict (conflicts/*.toml)."""

import itertools
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from pih.catalog import Constraint, Manifest, RuntimePart
from pih.lock import Target
from pih.resolve.explain import failure, reasons
from pih.resolve.solve import DeadEnd, Need, solve, start_order
from pih.resolve.target import misfit

TARGET = Target(os="linux", arch="x86_64", isa="x86-64-v3", threads=1, memory_bytes=1)
CONFLICTS = sorted((Path(__file__).parent / "conflicts").glob("*.toml"))


def plugin(identity, provides, requires=None, **more):
    runtime = RuntimePart("p", "p:start")
    fields = {"version": "1.0", "abi": 1, "summary": "", "runtime": runtime, **more}
    return Manifest(id=identity, kind=identity.split("/")[0], provides=provides, requires=requires or {}, **fields)


def need(capability, specifier=">=1.0,<2", **more):
    return Need(capability, specifier, reason="x.toml:1 it", **more)


def chosen(roots, plugins):
    found = solve(roots, plugins, lambda candidate: misfit(candidate, TARGET))
    return None if isinstance(found, DeadEnd) else [item.id for item in found.plugins]


@pytest.mark.parametrize("path", CONFLICTS, ids=lambda path: path.stem)
def test_conflict(path):
    data = tomllib.loads(path.read_text())
    plugins = tuple(
        plugin(item.pop("id"), item.pop("provides"), item.pop("requires", {}), **_constraint(item))
        for item in data["plugin"]
    )
    roots = [Need(specifier=item.pop("specifier", ">=1.0,<2"), **item) for item in data["root"]]
    end = solve(roots, plugins, lambda candidate: misfit(candidate, TARGET))
    assert isinstance(end, DeadEnd)
    assert str(failure(end, plugins)) == data["expected"].strip("\n")


def _constraint(item):
    if "target" in item:
        item["target"] = Constraint(**{key: tuple(value) for key, value in item["target"].items()})
    return item


def test_what_nobody_needs_is_not_chosen():
    plugins = [plugin("a/a", {"x": "1.0"}), plugin("transport/nccl", {"transport": "1.0"})]
    assert chosen([need("x")], plugins) == ["a/a"]


def test_the_highest_version_is_preferred_then_the_first_id():
    old, new = plugin("a/old", {"x": "1.0"}, version="1.9"), plugin("a/new", {"x": "1.0"}, version="1.10")
    assert chosen([need("x")], [old, new]) == ["a/new"]
    assert chosen([need("x")], [plugin("b/b", {"x": "1.0"}), plugin("a/a", {"x": "1.0"})]) == ["a/a"]


def test_a_choice_that_leads_nowhere_is_taken_back():
    plugins = [
        plugin("a/best", {"x": "1.0"}, {"gone": ">=1"}, version="2.0"),
        plugin("a/good", {"x": "1.0"}),
    ]
    assert chosen([need("x")], plugins) == ["a/good"]


def test_a_need_that_names_a_plugin_takes_no_other():
    torch = plugin("backend/torch", {"device": "1.0"})
    cpu = plugin("backend/cpu", {"device": "1.0"}, version="9.0")
    assert chosen([need("device", plugin="backend/torch")], [torch, cpu]) == ["backend/torch"]


def test_one_plugin_may_serve_several_needs():
    both = plugin("a/both", {"x": "1.0", "y": "1.0"})
    assert chosen([need("x"), need("y")], [both]) == ["a/both"]


def test_plugins_that_need_each_other_are_found_but_cannot_start():
    plugins = [plugin("a/a", {"x": "1.0"}, {"y": ">=1"}), plugin("b/b", {"y": "1.0"}, {"x": ">=1"})]
    found = solve([need("x")], plugins, lambda _: "")
    assert [item.id for item in found.plugins] == ["a/a", "b/b"]
    assert start_order(found) == ()


def test_reasons_go_back_to_the_profile():
    plugins = [
        plugin("a/a", {"x": "1.0"}, {"y": ">=1"}),
        plugin("b/b", {"y": "1.0"}, {"z": ">=1"}),
        plugin("c/c", {"z": "1"}),
    ]
    found = solve([need("x")], plugins, lambda _: "")
    assert reasons(plugins[2], found.served) == ("x.toml:1 it → a/a requires y >=1 → b/b requires z >=1",)


def test_start_order_has_providers_first_and_ids_for_ties():
    plugins = [
        plugin("z/base", {"base": "1"}),
        plugin("b/b", {"b": "1"}, {"base": ">=1"}),
        plugin("a/a", {"a": "1"}, {"base": ">=1"}),
        plugin("k/kernels", {"k": "1"}, runtime=None),
    ]
    found = solve([need("a"), need("b"), need("k")], plugins, lambda _: "")
    assert start_order(found) == ("z/base", "a/a", "b/b")


CAPABILITIES = "abcd"
SPECIFIERS = (">=1", ">=2", "<2", "==1")
DRAWN = st.builds(
    lambda number, version, provides, requires: plugin(
        f"k/p{number}",
        provides,
        {name: text for name, text in requires.items() if name not in provides},
        version=version,
    ),
    st.integers(0, 6),
    st.sampled_from(["1", "2"]),
    st.dictionaries(st.sampled_from(CAPABILITIES), st.sampled_from(["1", "2"]), min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(CAPABILITIES), st.sampled_from(SPECIFIERS), max_size=2),
)


def holds(selection, roots):
    """Does this set of plugins serve every need, each capability by one plugin, and only what is needed?"""
    provided = [name for item in selection for name in item.provides]
    if len(set(provided)) < len(provided):
        return False
    versions = {name: version for item in selection for name, version in item.provides.items()}
    needs = [(root.capability, root.specifier) for root in roots]
    needs += [pair for item in selection for pair in item.requires.items()]
    return all(name in versions and SpecifierSet(text).contains(versions[name]) for name, text in needs)


@settings(max_examples=200)
@given(
    st.lists(DRAWN, max_size=7, unique_by=lambda item: item.id),
    st.lists(st.tuples(st.sampled_from(CAPABILITIES), st.sampled_from(SPECIFIERS)), min_size=1, max_size=2),
)
def test_a_solution_is_found_whenever_there_is_one_and_always_the_same(plugins, wanted):
    roots = [need(name, text) for name, text in wanted]
    found = solve(roots, plugins, lambda _: "")
    subsets = itertools.chain.from_iterable(itertools.combinations(plugins, size) for size in range(len(plugins) + 1))
    assert isinstance(found, DeadEnd) == (not any(holds(subset, roots) for subset in subsets))
    if not isinstance(found, DeadEnd):
        assert holds(found.plugins, roots)
        assert solve(roots, list(reversed(plugins)), lambda _: "") == found
