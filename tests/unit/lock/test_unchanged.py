"""When a lock no longer answers though profile and plugin.toml are as they were: code, files of the model, places."""

import shutil
from pathlib import Path

import attrs
import pytest

from pih import catalog, pins, profile, stale
from pih.resolve import locking, unchanged
from pih.trust import keyring
from pih_runtime.errors import FetchError, LockError
from tests.unit.trust import made

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text()
TEMPLATE = 'chat_template = "file:../models/qwen3-0.6b/chat_template.jinja"'
PINS = pins.load(ROOT)


def nothing(artifact):
    raise FetchError(f"{artifact.name} is not here")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for part in ("plugins", "models", "resolver/pih_steps", "runtime"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "profiles").mkdir()
    (root.parent / "outside").mkdir()
    return root


@pytest.fixture
def memo(tmp_path_factory):
    return tmp_path_factory.mktemp("memo")


def locked(root, memo, text=TEXT, folder="profiles"):
    intent = profile.parse(text.encode(), root / folder / "x.toml")
    found = locking.lock(intent, catalog.load(root), PINS, None, fetch=nothing, pin=None, memo=memo)
    return found, intent


def why(root, memo, found, intent):
    try:
        known = catalog.load(root)
        stale.check(found, intent, known)
        unchanged.check(found, intent, known, nothing, memo)
    except LockError as problem:
        return problem.what if problem.fix == f"pih lock --profile {intent.path}" else problem.fix
    return ""


class edited:  # noqa: N801 - used as a statement
    """A file with other words while it lasts."""

    def __init__(self, path, old, new):
        self.path, self.old, self.new = path, old, new

    def __enter__(self):
        self.before = self.path.read_text()
        assert self.old in self.before
        self.path.write_text(self.before.replace(self.old, self.new, 1))

    def __exit__(self, *_):
        self.path.write_text(self.before)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("plugins/model/qwen3/pih_model_qwen3/__init__.py", 'real(config, "rms_norm_eps")', "1e-3"),
        ("models/qwen3-0.6b/config.json", '"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'),
    ],
)
def test_an_edit_that_changes_the_plan_is_told(whole, memo, file, old, new):
    found, intent = locked(whole, memo)
    assert why(whole, memo, found, intent) == ""
    with edited(whole / file, old, new):
        words = why(whole, memo, found, intent)
    assert words.startswith("plan: plugins/model/qwen3, the lowering or a file of the model is another than when")
    assert why(whole, memo, found, intent) == ""


def test_an_edit_after_which_nothing_can_be_lowered_is_told(whole, memo):
    found, intent = locked(whole, memo)
    with edited(whole / "models/qwen3-0.6b/config.json", '"num_hidden_layers": 28', '"num_hidden_layers": 29'):
        assert "nothing can be lowered" in why(whole, memo, found, intent)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("plugins/model/qwen3/pih_model_qwen3/__init__.py", '"""', '"""Other words. '),
        ("plugins/model/llama/pih_model_llama/__init__.py", 'real(config, "rms_norm_eps")', "1e-3"),
        ("models/qwen3-0.6b/config.json", "{", "{ "),
        ("models/qwen3-0.6b/chat_template.jinja", "{", "{"),
    ],
)
def test_an_edit_that_changes_no_plan_is_not(whole, memo, file, old, new):
    found, intent = locked(whole, memo)
    with edited(whole / file, old, new):
        assert why(whole, memo, found, intent) == ""


def test_what_was_lowered_already_is_not_lowered_again(whole, memo, monkeypatch):
    found, intent = locked(whole, memo)
    monkeypatch.setattr("pih.resolve.lowered.lower", None)
    assert why(whole, memo, found, intent) == ""


def test_a_file_beside_the_profile_with_other_bytes_is_told(whole, memo):
    beside = whole.parent / "outside" / "chat.jinja"
    beside.write_text("{{ messages }}")
    text = TEXT.replace(TEMPLATE, 'chat_template = "file:chat.jinja"').replace("file:../models", f"file:{whole}/models")
    found, intent = locked(whole, memo, text, folder="../outside")
    assert why(whole, memo, found, intent) == ""
    for other in ("{{ message }}", "{{ MESSAGES }}"):
        beside.write_text(other)
        assert why(whole, memo, found, intent) == "artifacts: chat.jinja has other bytes than when it was locked"
    beside.unlink()  # the store may have it
    assert why(whole, memo, found, intent) == ""


ENTRY = '\n[[plugins]]\npath = "npu"\ntrust = "local"\n'


def of_outside(tmp_path, entries, lock=None):
    ring = keyring.Keyring()
    intent, known = made.intent(tmp_path, entries), made.catalog_of(tmp_path, entries, ring, lock)
    return intent, known


def test_only_the_place_of_a_plugin_that_is_locked_matters(tmp_path, memo):
    """Another entry beside it changes nothing; another place for the same plugin does, as does none."""
    made.plugin(tmp_path / "npu")
    shutil.copytree(tmp_path / "npu", tmp_path / "moved")
    made.plugin(tmp_path / "other", text=made.MANIFEST.replace("backend/npu", "backend/another"))
    intent, known = of_outside(tmp_path, ENTRY)
    found = locking.lock(intent, known, PINS, None, fetch=nothing, pin=None, memo=memo)

    def words(entries):
        intent, known = of_outside(tmp_path, entries, found)
        try:
            stale.check(found, intent, known)
            unchanged.check(found, intent, known, nothing, memo)
        except LockError as problem:
            return problem.what
        return ""

    assert words(ENTRY) == ""
    assert words(ENTRY + ENTRY.replace("npu", "other")) == ""
    assert words(ENTRY.replace("npu", "other") + ENTRY) == ""
    assert words(ENTRY.replace("npu", "moved") + ENTRY) == ""
    for same in ("./npu", "npu/", ".//npu/."):
        assert words(ENTRY.replace("npu", same)) == ""
    assert words(ENTRY.replace("npu", "moved")) == "plugins: backend/npu 0.1.0 lies elsewhere than when it was locked"
    assert "the catalog has no such plugin any more" in words("")


NO_PLAN = {
    "step": lambda lock: {"build": attrs.evolve(lock.build, steps=lock.build.steps[-1:])},
    "pack": lambda lock: {"plugins": tuple(plugin for plugin in lock.plugins if plugin.kind != "kernels")},
    "cache": lambda lock: {"budget": attrs.evolve(lock.budget, kv=1)},
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("step", "build: no step lowers the model"),
        ("pack", "plugins: none of them has the kernels that the plan is bound to"),
        ("cache", "budget: weights and kv are not the bytes that the plan needs"),
    ],
)
def test_a_lock_that_does_not_hold_together_is_told(whole, memo, kind, words):
    found, intent = locked(whole, memo)
    assert why(whole, memo, attrs.evolve(found, **NO_PLAN[kind](found)), intent) == words
