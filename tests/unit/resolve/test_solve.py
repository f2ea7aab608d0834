"""The solver: what it prefers, that it misses nothing, takes nothing in vain, and is quick."""

import itertools
import random
import time
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import attrs
import pytest
from packaging.specifiers import SpecifierSet

from pih import catalog, profile
from pih.catalog import Permissions, RuntimePart
from pih.resolve.choice import choose, ranking
from pih.resolve.explain import failure, reasons
from pih.resolve.order import circle, start_order
from pih.resolve.outcome import DeadEnd, Solution
from pih.resolve.solve import STEPS, solve
from pih.resolve.target import target_of
from tests.support.catalogs import ladder, layered, need, pigeons, plugin

ROOT = Path(__file__).parents[3]


def never(_):
    return None


def chosen(roots, plugins):
    found = solve(roots, plugins, never)
    return None if isinstance(found, DeadEnd) else [item.id for item in found.plugins]


def test_what_nobody_needs_is_not_chosen():
    plugins = [plugin("a/a", {"x": "1.0"}), plugin("transport/nccl", {"transport": "1.0"})]
    assert chosen([need("x")], plugins) == ["a/a"]


def test_the_highest_version_is_preferred_then_the_first_id():
    old, new = plugin("a/old", {"x": "1.0"}, version="1.9"), plugin("a/new", {"x": "1.0"}, version="1.10")
    assert chosen([need("x")], [old, new]) == ["a/new"]
    assert chosen([need("x")], [plugin("b/b", {"x": "1.0"}), plugin("a/a", {"x": "1.0"})]) == ["a/a"]


@pytest.mark.parametrize("early", ["0.2.0rc1", "0.2.0a1", "0.2.0.dev3"])
def test_a_pre_release_is_chosen_where_nothing_else_serves(early):
    final, new = plugin("a/a", {"x": "1.0"}, version="0.1.0"), plugin("a/a", {"x": "1.1"}, version=early)
    known = catalog.Catalog(ROOT, (final, new))

    def version(specifier, *plugins, held=()):
        rank = ranking(frozenset(held), [], known)
        (found,) = solve([need("x", specifier)], plugins, never, rank).plugins
        return found.version

    assert version(">=1", final, new) == version(">=1", new, final) == "0.1.0"
    assert version(">=1.1", final, new) == version(">=1", new) == early
    assert version(">=1", final, new, held=[("a/a", early)]) == early


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
    found = solve([need("x")], plugins, never)
    assert [item.id for item in found.plugins] == ["a/a", "b/b"]
    assert start_order(found) == ()
    assert circle(found) == ("a/a", "b/b", "a/a")
    # one that runs at build time alone has no start to wait for
    found = solve([need("x")], [plugins[0], attrs.evolve(plugins[1], runtime=None)], never)
    assert start_order(found) == ("a/a",)


def test_a_less_preferred_choice_is_taken_where_the_first_goes_round_in_a_circle():
    preferred = plugin("b/new", {"y": "1.0"}, {"x": ">=1"}, version="2")
    plugins = [plugin("a/a", {"x": "1.0"}, {"y": ">=1"}), preferred, plugin("b/old", {"y": "1.0"})]
    found = solve([need("x")], plugins, never)
    assert start_order(found) == ("b/old", "a/a")
    # a circle through what is used where it is there, and one of a plugin with itself
    uses = plugin("b/new", {"y": "1.0"}, version="2", optional={"x": ">=1"})
    assert start_order(solve([need("x")], [*plugins[::2], uses], never)) == ("b/old", "a/a")
    itself = plugin("b/new", {"y": "1.0"}, {"y": ">=1"}, version="2")
    assert start_order(solve([need("x")], [*plugins[::2], itself], never)) == ("b/old", "a/a")


def test_circles_everywhere_are_left_without_trying_every_way_round():
    """Thirty levels of ten, each of which requires the first level again; the last of each does not."""
    plugins = layered(30, 10)
    again = [
        attrs.evolve(item, requires={**item.requires, "c0": ">=1"}, version="2")
        for item in plugins
        if not item.id.startswith("l0/") and not item.id.endswith("/p0")
    ]
    free = [item for item in plugins if item.id.endswith("/p0") or item.id.startswith("l0/")]
    found = solve([need("c0", ">=1")], [*again, *free], never)
    assert circle(found) == ()
    assert found.steps < len(plugins) ** 2


def test_reasons_go_back_to_the_profile():
    plugins = [
        plugin("a/a", {"x": "1.0"}, {"y": ">=1"}),
        plugin("b/b", {"y": "1.0"}, {"z": ">=1"}),
        plugin("c/c", {"z": "1"}),
    ]
    found = solve([need("x")], plugins, never)
    assert reasons(plugins[2], found.served) == ("x.toml:1 it → a/a requires y >=1 → b/b requires z >=1",)


def test_start_order_has_providers_first_and_ids_for_ties():
    plugins = [
        plugin("z/base", {"base": "1"}),
        plugin("b/b", {"b": "1"}, {"base": ">=1"}),
        plugin("a/a", {"a": "1"}, {"base": ">=1"}),
        plugin("k/kernels", {"k": "1"}, runtime=None),
    ]
    found = solve([need("a"), need("b"), need("k")], plugins, never)
    assert start_order(found) == ("z/base", "a/a", "b/b")


def test_an_optional_requirement_brings_nothing_but_comes_first_where_it_is_there():
    user, used = plugin("z/used", {"y": "1.0"}), plugin("a/user", {"x": "1.0"}, optional={"y": ">=1"})
    assert chosen([need("x")], [user, used]) == ["a/user"]
    found = solve([need("x"), need("y")], [user, used], never)
    assert start_order(found) == ("z/used", "a/user")


def test_an_optional_requirement_rules_out_versions_that_do_not_fit():
    old, new = plugin("b/old", {"y": "1.0"}), plugin("b/new", {"y": "1.5"}, version="2.0")
    user = plugin("a/user", {"x": "1.0"}, optional={"y": "<1.5"})
    assert chosen([need("x"), need("y")], [old, new, user]) == ["a/user", "b/old"]
    assert chosen([need("y"), need("x")], [old, new, user]) == ["a/user", "b/old"]


def test_plugins_that_conflict_are_never_together():
    best = plugin("b/best", {"y": "1.0"}, version="2.0", conflicts={"a/a": "<2"})
    plugins = [plugin("a/a", {"x": "1.0"}), best, plugin("b/other", {"y": "1.0"})]
    assert chosen([need("x"), need("y")], plugins) == ["a/a", "b/other"]
    assert chosen([need("y"), need("x")], plugins) == ["a/a", "b/other"]


def test_two_plugins_do_not_listen_at_one_port():
    listens = Permissions(network="listen")
    plugins = [plugin("a/a", {"x": "1.0"}, permissions=listens), plugin("b/b", {"y": "1.0"}, permissions=listens)]
    assert chosen([need("x"), need("y")], plugins) is None


def test_preferences_come_before_versions():
    plugins = [
        plugin("a/a", {"x": "1.0"}, version="3"),
        plugin("b/b", {"x": "1.0"}, version="2"),
        plugin("c/c", {"x": "1"}),
    ]
    known = catalog.Catalog(ROOT, tuple(plugins))
    found = solve([need("x", ">=1")], plugins, never, ranking(frozenset({("b/b", "2")}), [], known))
    assert [item.id for item in found.plugins] == ["b/b"]
    found = solve([need("x", ">=1")], plugins, never, ranking(frozenset({("b/b", "2")}), ["c/c", "a/a"], known))
    assert [item.id for item in found.plugins] == ["c/c"]


CAPABILITIES = "abcde"
SPECIFIERS = (">=1", ">=2", "<2", "==1", "!=1.5")


def a_catalog(dice):
    """A few plugins at random: several versions of some, that share capabilities, exclude and restrict each other."""
    plugins = {}
    for _ in range(dice.randint(0, 8)):
        identity, version = f"k/p{dice.randint(0, 5)}", dice.choice(("1", "2", "1.5"))
        provides = {name: dice.choice(("1", "1.5", "2")) for name in dice.sample(CAPABILITIES, dice.randint(1, 2))}
        others = [name for name in CAPABILITIES if name not in provides]
        requires = {name: dice.choice(SPECIFIERS) for name in dice.sample(CAPABILITIES, dice.randint(0, 2))}
        optional = {dice.choice(others): dice.choice(SPECIFIERS)} if dice.random() < 0.2 else {}
        conflicts = {f"k/p{dice.randint(0, 5)}": dice.choice(("", "<2"))} if dice.random() < 0.2 else {}
        conflicts.pop(identity, None)
        permissions = Permissions(network=dice.choice(("none", "none", "listen")))
        runtime = RuntimePart("p", "p:start") if dice.random() < 0.8 else None
        plugins[identity, version] = plugin(
            identity,
            provides,
            requires,
            version=version,
            optional=optional,
            conflicts=conflicts,
            permissions=permissions,
            runtime=runtime,
        )
    return list(plugins.values())


def holds(selection, roots):
    """The rules again, in the plainest words: may these plugins stand together, and is every need served?"""
    provided = [name for item in selection for name in item.provides]
    ids = [item.id for item in selection]
    if len(set(provided)) < len(provided) or len(set(ids)) < len(ids):
        return False
    if sum(item.permissions.network == "listen" for item in selection) > 1:
        return False
    versions = {name: version for item in selection for name, version in item.provides.items()}
    of_plugins = {item.id: item.version for item in selection}
    for item in selection:
        if any(name in of_plugins and of_plugins[name] in SpecifierSet(text) for name, text in item.conflicts.items()):
            return False
        if any(name in versions and versions[name] not in SpecifierSet(text) for name, text in item.optional.items()):
            return False
    needs = [(root.capability, root.specifier) for root in roots]
    needs += [pair for item in selection for pair in item.requires.items()]
    if not all(name in versions and versions[name] in SpecifierSet(text) for name, text in needs):
        return False
    providers = {name: item.id for item in selection for name in item.provides}
    running = {item.id: item for item in selection if item.runtime}
    after = {
        name: {providers[wanted] for wanted in (*item.requires, *item.optional) if wanted in providers} & running.keys()
        for name, item in running.items()
    }
    try:
        TopologicalSorter(after).prepare()
    except CycleError:
        return False
    return True


def needed(selection, roots):
    """The plugins that the needs lead to, one after the other."""
    wanted, seen = [root.capability for root in roots], set()
    while wanted:
        capability = wanted.pop()
        item = next(item for item in selection if capability in item.provides)
        if item.id not in seen:
            seen.add(item.id)
            wanted += item.requires
    return seen


@pytest.mark.parametrize("told", [8, 1])
@pytest.mark.parametrize("seed", range(30))
def test_against_brute_force(seed, told, monkeypatch):
    """Three thousand catalogs: found whenever there is one, nothing in vain, the same in every order.

    told: dead ends after which the search begins to look ahead.
    """
    monkeypatch.setattr("pih.resolve.solve._TOLD", told)
    dice, solved = random.Random(seed), 0
    for _ in range(100):
        plugins = a_catalog(dice)
        roots = [need(name, dice.choice(SPECIFIERS)) for name in dice.sample(CAPABILITIES, dice.randint(1, 3))]
        found = solve(roots, plugins, never)
        subsets = itertools.chain.from_iterable(itertools.combinations(plugins, n) for n in range(len(plugins) + 1))
        possible = any(holds(subset, roots) for subset in subsets)
        assert (isinstance(found, Solution) and not circle(found)) == possible
        shuffled = dice.sample(plugins, len(plugins))
        again = solve(roots, shuffled, never)
        if isinstance(found, DeadEnd):
            assert (again.need, again.refusals) == (found.need, found.refusals)
            continue
        assert again == found
        if circle(found):
            continue
        solved += 1
        assert holds(found.plugins, roots)
        assert needed(found.plugins, roots) == {item.id for item in found.plugins}
        unrelated = plugin("z/unrelated", {"zzz": "9"}, {"a": ">=1"}, version="9")
        assert solve(roots, [*plugins, unrelated], never) == found
    assert solved


@pytest.mark.parametrize("seed", range(10))
def test_what_dead_ends_teach_changes_no_answer(seed, monkeypatch):
    dice = random.Random(seed)
    for _ in range(100):
        plugins = [item for _ in range(3) for item in a_catalog(dice)]
        plugins = list({(item.id, item.version): item for item in plugins}.values())
        roots = [need(name, dice.choice(SPECIFIERS)) for name in dice.sample(CAPABILITIES, 3)]
        answers = []
        for told in (1, 8, 100_000):
            monkeypatch.setattr("pih.resolve.solve._TOLD", told)
            found = solve(roots, plugins, never)
            answers.append((type(found), found.served, getattr(found, "need", None)))
        assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("seed", range(10))
def test_small_ladders_against_brute_force(seed):
    """Each plugin requires two of the next level in narrow ranges: the most preferred whole choice, or none."""
    dice = random.Random(seed)
    plugins, roots = ladder(seed, 3, 2, 3, dice.choice((1, 2, 2)))
    levels = [[item for item in plugins if name in item.provides] for name in ("c0.0", "c0.1", "c1.0", "c1.1")]
    levels += [[item for item in plugins if name in item.provides] for name in ("c2.0", "c2.1")]
    found = solve(roots, plugins, never)
    whole = [choice for choice in itertools.product(*levels) if holds(choice, roots)]
    assert isinstance(found, Solution) == bool(whole)
    if whole:
        assert list(found.plugins) in [sorted(choice, key=lambda item: item.id) for choice in whole]
        assert solve(roots, dice.sample(plugins, len(plugins)), never) == found


@pytest.mark.parametrize(("count", "holes"), [(3, 3), (4, 3), (7, 7), (7, 6), (9, 9), (9, 8)])
def test_pigeons_have_a_hole_each_or_there_is_none(count, holes):
    plugins, roots = pigeons(count, holes)
    found = solve(roots, plugins, never)
    assert isinstance(found, Solution) == (count <= holes)
    assert not isinstance(found, DeadEnd) or not found.given_up


def test_the_search_ends_in_words_where_it_would_take_for_ever():
    """A number of steps and no time: the same on every host, in every order of the catalog."""
    plugins, roots = pigeons(20, 19)
    found = solve(roots, plugins, never, limit=2000)
    assert found.given_up
    again = solve(roots, reversed(plugins), never, limit=2000)
    assert (again, again.steps) == (found, found.steps)
    words = failure(found, tuple(plugins))
    assert f"in {found.steps} steps the search came to no end" in words.what
    assert "selection.prefer" in words.fix


def test_a_million_steps_are_the_end():
    plugins, roots = pigeons(20, 19)
    found = solve(roots, plugins, never)
    assert found.given_up
    assert found.steps < 2 * STEPS


def test_ten_thousand_candidates_thirty_deep():
    """Within a second; as a figure, a tenth of that."""
    plugins = layered(30, 334)
    assert len(plugins) > 10_000
    began = time.process_time()
    found = solve([need("c0", ">=1")], plugins, never)
    assert time.process_time() - began < 1
    assert found.steps == 30


@pytest.mark.parametrize("span", [111, 40, 20])
def test_ten_thousand_candidates_that_require_two_of_the_next_level(span):
    """From where nearly all go together to where one pair in seven does."""
    plugins, roots = ladder(span, 30, 3, 111, span)
    assert len(plugins) == 9990
    found = solve(roots, plugins, never)
    assert isinstance(found, Solution)
    assert found.steps < 3000


def test_a_dead_end_at_the_bottom_does_not_try_every_way_there():
    plugins = [*layered(30, 333), plugin("x/x", {"c30": "1"}, {"gone": ">=1"})]
    plugins = [
        plugin(item.id, item.provides, {"c30": ">=1"}) if item.id.startswith("l29/") else item for item in plugins
    ]
    found = solve([need("c0", ">=1")], plugins, never)
    assert isinstance(found, DeadEnd)
    assert not found.given_up
    assert found.steps < 3 * len(plugins)


def test_two_needs_that_only_late_choices_reconcile():
    """The last level of one chain rules out all but one provider of a need that was served first."""
    plugins = layered(30, 100)
    first = [plugin(f"f/p{n:03}", {"first": "1"}, version=f"{999 - n}") for n in range(10)]
    picky = {item.id: ">0" for item in first[:-1]}
    plugins = [
        plugin(item.id, item.provides, {}, conflicts=picky) if item.id.startswith("l29/") else item for item in plugins
    ]
    found = solve([need("first", ">=1"), need("c0", ">=1")], [*first, *plugins], never)
    assert "f/p009" in {item.id for item in found.plugins}
    assert found.steps < 10 * len(plugins)


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_the_plugins_of_a_shipped_profile_are_chosen_at_once(path):
    intent, known = profile.load(path), catalog.load(ROOT)
    began = time.process_time()
    choose(intent, known, target_of(intent), None)
    assert time.process_time() - began < 0.1
