"""Commands that are told to be typed can be typed, whatever a path looks like."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from pih import catalog, lock, profile, stale
from pih.cli import build, why
from pih.inspect import explain
from pih_runtime.errors import LockError
from tests.support.program import ROOT

TOLD = re.compile(
    r"\b(?:pih [a-z]+|podman [a-z]+|docker [a-z]+|tar -[A-Za-z]+)\b[^\"{]*"
    r"\{(?!shlex\.)[^}]*(?:path|folder|layout|output)[^}]*\}"
)


@pytest.fixture
def spaced(tmp_path):
    """A shipped profile in a folder whose name is two words."""
    folder = tmp_path / "a b"
    folder.mkdir()
    return Path(shutil.copy(ROOT / "profiles/smollm2-cpu.toml", folder))


def test_no_source_puts_a_path_into_a_command_as_it_is():
    assert TOLD.search('fix = f"pih lock --profile {profile.path}"')
    assert not TOLD.search('fix = f"pih lock --profile {shlex.quote(str(profile.path))}"')
    for tree in ("resolver", "runtime", "tools/gpu"):
        for path in (ROOT / tree).rglob("*.py"):
            assert not TOLD.findall(path.read_text()), path


def test_a_stale_lock_names_the_command(spaced):
    spaced.write_text(spaced.read_text().replace("batch = ", "batch = 1"))
    known = catalog.load(ROOT)
    with pytest.raises(LockError) as caught:
        stale.check(lock.read(ROOT / "profiles/smollm2-cpu.lock.json"), profile.load(spaced), known)
    assert shlex.split(caught.value.fix) == ["pih", "lock", "--profile", str(spaced)]


@pytest.mark.parametrize(("command", "before"), [(build, []), (why, ["libc6"])])
def test_a_lock_edited_by_hand_names_the_command(spaced, command, before):
    text = (ROOT / "profiles/smollm2-cpu.lock.json").read_text()
    spaced.with_suffix(".lock.json").write_text(text.replace('"port": 8000', '"port": 8001'))
    arguments = [*before, "--profile", str(spaced)]
    with pytest.raises(LockError, match=r"service\.port was changed") as caught:
        CliRunner().invoke(command.command, arguments, standalone_mode=False, catch_exceptions=False)
    told = caught.value.fix.removeprefix("write the lock again: ")
    assert shlex.split(told) == ["pih", "lock", "--profile", str(spaced)]


def test_explain_tells_the_whole_command(spaced):
    found = explain.explanation(lock.read(ROOT / "profiles/smollm2-cpu.lock.json"), profile.load(spaced), ROOT)
    texts = [below.text for choice in explain.tree(found).below[1].below for below in choice.below]
    told = [text.partition(": ")[2] for text in texts if ": pih why " in text]
    assert told
    for command in told:
        words = shlex.split(command)
        assert words[:2] == ["pih", "why"]
        assert words[3:] == ["--profile", str(spaced)]
