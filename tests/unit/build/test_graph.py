"""Step keys: each input counts, nothing else does."""

import os
import shutil
from types import SimpleNamespace

import attrs
import pytest

from pih.build import graph
from pih.build import tree as disk
from pih.lock import Artifact, Limits, Seed, Step
from pih_runtime.errors import LockError
from tests.unit.build.test_tree import nest

STEP = Step("plan", "plan", {"a": 1}, ("model",), ("trees/a",), ("base",), ("numpy",))
ARTIFACTS = {"model": "1" * 64, "numpy": "2" * 64, "other": "3" * 64}
TREES = {"trees/a": "4" * 64, "resolver/pih_steps": "5" * 64, "runtime/pih_runtime": "6" * 64, "other": "7" * 64}
OUTPUTS = {"base": "8" * 64, "other": "9" * 64}


def key(step=STEP, artifacts=ARTIFACTS, trees=TREES, outputs=OUTPUTS, interpreter="py"):
    return graph.step_key(step, artifacts, trees, outputs, interpreter)


def test_a_key_stays_what_it_is():
    assert key() == "5ec91b6a57b4cdfe1e04956c37d1afffdc13da686388c247c51e4ec328ce009a"


@pytest.mark.parametrize(
    "change",
    [
        {"step": attrs.evolve(STEP, run="weights")},
        {"step": attrs.evolve(STEP, params={"a": 2})},
        {"step": attrs.evolve(STEP, artifacts=())},
        {"step": attrs.evolve(STEP, tools=())},
        {"step": attrs.evolve(STEP, trees=())},
        {"step": attrs.evolve(STEP, steps=())},
        {"artifacts": ARTIFACTS | {"model": "a" * 64}},
        {"artifacts": ARTIFACTS | {"numpy": "a" * 64}},
        {"trees": TREES | {"trees/a": "a" * 64}},
        {"trees": TREES | {"resolver/pih_steps": "a" * 64}},
        {"trees": TREES | {"runtime/pih_runtime": "a" * 64}},
        {"outputs": OUTPUTS | {"base": "a" * 64}},
        {"interpreter": "other"},
    ],
)
def test_every_input_counts(change):
    assert key(**change) != key()


@pytest.mark.parametrize(
    "change",
    [
        {"step": attrs.evolve(STEP, id="renamed")},
        {"artifacts": ARTIFACTS | {"other": "a" * 64}},
        {"trees": TREES | {"other": "a" * 64}},
        {"outputs": OUTPUTS | {"other": "a" * 64}},
    ],
)
def test_nothing_else_counts(change):
    assert key(**change) == key()


def test_a_step_that_declares_part_of_the_program_sees_that_part_alone():
    step = attrs.evolve(STEP, trees=("resolver/pih_steps/plan.py", "runtime/pih_runtime"))
    assert graph.trees_of(step) == ("resolver/pih_steps/plan.py", "runtime/pih_runtime")
    assert graph.trees_of(attrs.evolve(STEP, trees=())) == ("resolver/pih_steps", "runtime/pih_runtime")


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "folder").mkdir(parents=True)
    (root / "one").write_text("1")
    (root / "folder/two").write_text("2")
    (root / "link").symlink_to("one")
    return root


def test_times_caches_and_permissions_of_others_do_not_count(tree):
    before = graph.digest_of(tree)
    os.utime(tree / "one", (0, 0))
    (tree / "one").chmod(0o600)
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__/x").touch()
    (tree / "x.pyc").touch()
    (tree / "empty").mkdir()
    assert graph.digest_of(tree) == before
    assert graph.digest_of(shutil.copytree(tree, tree.parent / "copy", symlinks=True)) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "one").write_text("x"),
        lambda tree: (tree / "one").chmod(0o755),
        lambda tree: (tree / "new").touch(),
        lambda tree: (tree / "one").rename(tree / "uno"),
        lambda tree: (tree / "folder/two").unlink(),
        lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("folder/two")),
        lambda tree: ((tree / "link").unlink(), (tree / "link").write_text("1")),
    ],
)
def test_names_bytes_links_and_the_executable_bit_count(tree, change):
    before = graph.digest_of(tree), graph.output_digest(tree)
    change(tree)
    after = graph.digest_of(tree), graph.output_digest(tree)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_every_file_of_an_output_counts(tree):
    before = graph.output_digest(tree)
    (tree / "x.pyc").touch()
    assert graph.output_digest(tree) != before


def a_lock(*artifacts, **changes):
    """As much of a lock as is checked."""
    build = {"interpreter": ("a",), "seed": Seed("a", "m", "0" * 64, 1), "steps": (attrs.evolve(STEP, **NO_INPUTS),)}
    names = {"name": changes.pop("name", "chat")}
    return SimpleNamespace(
        profile=SimpleNamespace(**names),
        target=SimpleNamespace(os="linux", arch=changes.pop("arch", "x86_64")),
        plan=SimpleNamespace(sha256="1" * 64),
        limits=Limits(context=64, batch=2, tokens=16, kv_dtype="bf16", spill=0),
        artifacts=artifacts or (ARTIFACT,),
        build=SimpleNamespace(**(build | changes)),
    )


NO_INPUTS = {"artifacts": (), "tools": (), "steps": ()}
ARTIFACT = Artifact("a", "1", "deb", "0" * 64, 1, (), "MIT", ())


def test_a_target_that_no_step_builds_for_is_refused():
    with pytest.raises(LockError, match="the target linux/aarch64 is not supported, but linux/x86_64 is"):
        graph.check(a_lock(arch="aarch64"))


@pytest.mark.parametrize(
    "params",
    [
        {"expected_plan_sha256": "0" * 64},
        {"arch": "aarch64"},
        {"limits": {"tokens": "16", "seqs": 2, "context": 64}},
        {"limits": []},
        {"kv_dtype": "f32"},
        {"spill": 1},
    ],
    ids=["plan", "arch", "limits", "no limits", "cache", "spill"],
)
def test_a_step_that_is_told_something_else_than_the_lock_says_is_refused(params):
    step = attrs.evolve(STEP, params=params, artifacts=("a",), steps=(), tools=())
    with pytest.raises(LockError, match="step 'plan' has"):
        graph.check(a_lock(steps=(step,)))


def test_a_sound_lock():
    graph.check(a_lock())
    graph.check(a_lock(attrs.evolve(ARTIFACT, size=0)))


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "../../x"},
        {"sha256": "A" * 64},
        {"sha256": ""},
        {"sha256": "0" * 64 + "\n"},
        {"size": -1},
        {"size": 1 << 60},
        {"name": ""},
        {"name": "a\0"},
        {"name": "\x1b[2J"},
    ],
)
def test_artifacts_that_cannot_be_are_refused(change):
    with pytest.raises(LockError):
        graph.check(a_lock(ARTIFACT, attrs.evolve(attrs.evolve(ARTIFACT, name="b"), **change)))


@pytest.mark.parametrize(
    "change",
    [
        {"interpreter": ()},
        {"interpreter": ("b",)},
        {"seed": Seed("b", "m", "0" * 64, 1)},
        {"seed": Seed("a", "m", "x", 1)},
        {"seed": Seed("a", "m", "0" * 64, -1)},
        {"name": "../x"},
        {"name": ""},
        {"name": "a" * 200},
    ],
)
def test_locks_that_cannot_be_are_refused(change):
    with pytest.raises(LockError):
        graph.check(a_lock(**change))


def test_two_artifacts_of_one_name_are_refused():
    with pytest.raises(LockError, match="two artifacts 'a'"):
        graph.check(a_lock(ARTIFACT, attrs.evolve(ARTIFACT, sha256="1" * 64)))


def test_deep_trees_have_digests(tree):
    nest(tree, 1500)
    assert graph.digest_of(tree) != graph.digest_of(tree / "folder")
    assert graph.output_digest(tree) != graph.output_digest(tree / "folder")
    disk.remove(tree / "d")  # pytest itself cannot
