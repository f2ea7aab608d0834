"""The shortcut of lowering: taken for the same inputs, never for others, and harmless where it is damaged."""

import shutil
from pathlib import Path

import pytest

from pih import catalog, pins, profile
from pih.resolve import locking
from pih.resolve import lowered as lowered_module

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text()
PINS = pins.load(ROOT)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for part in ("plugins", "models", "resolver/pih_steps", "runtime"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "profiles").mkdir()
    return root


def resolved(tree, memo, text=TEXT):
    intent = profile.parse(text.encode(), tree / "profiles" / "x.toml")
    return locking.lock(intent, catalog.load(tree), PINS, None, fetch=None, pin=None, memo=memo)


@pytest.fixture
def lowered(monkeypatch):
    calls = []
    real = lowered_module.lower
    monkeypatch.setattr(lowered_module, "lower", lambda *given: calls.append(1) or real(*given))
    return calls


def test_the_same_inputs_are_lowered_once(tree, tmp_path, lowered):
    assert resolved(tree, tmp_path) == resolved(tree, tmp_path) == resolved(tree, None)
    assert len(lowered) == 2


def test_a_folder_that_keeps_nothing_is_done_without(tree, tmp_path, lowered):
    """As of a store on a file system that is read alone."""
    (tmp_path / "lowered").touch()
    assert resolved(tree, tmp_path / "lowered") == resolved(tree, None)
    assert len(lowered) == 2


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("plugins/model/qwen3/pih_model_qwen3/__init__.py", '"""', '"""Changed. '),
        ("plugins/kernels/cpu/plugin.toml", "id =", "# changed\nid ="),
        ("resolver/pih_steps/lower/bind.py", '"""', '"""Changed. '),
        ("runtime/pih_runtime/ops.py", '"""', '"""Changed. '),
        ("models/qwen3-0.6b/config.json", "{", " {"),
    ],
)
def test_a_changed_input_is_lowered_again(tree, tmp_path, lowered, file, old, new):
    resolved(tree, tmp_path)
    path = tree / file
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))
    resolved(tree, tmp_path)
    path.write_text(before)
    assert len(lowered) == 2


def test_other_limits_are_lowered_again(tree, tmp_path, lowered):
    resolved(tree, tmp_path)
    resolved(tree, tmp_path, TEXT.replace("context = 2048", "context = 1024"))
    assert len(lowered) == 2


@pytest.mark.parametrize("damage", ["", "{", "{}", '{"plan": 1}'])
def test_a_damaged_entry_is_made_again(tree, tmp_path, lowered, damage):
    expected = resolved(tree, tmp_path)
    (entry,) = tmp_path.iterdir()
    entry.write_text(damage)
    assert resolved(tree, tmp_path) == expected
    assert resolved(tree, tmp_path) == expected
    assert len(lowered) == 2
