"""Everything that can keep a profile from its lock: NAME.toml says how it comes about, NAME.txt what the user reads.

Some are of the solver alone: [[root]] what the profile needs, [[plugin]] the catalog, [device] the machine's.
The others are of the shipped profile and plugins: `edit` and `append` change the profile, [[catalog]] and `remove` the
plugins; [add] is one more, `like` another but for `old`, which is `new`;
lock = "before": there is one from before these changes; "edited": there is one that was changed by hand.
With PIH_WRITE_WORDS=1 the words are written anew, to be read in the diff.
"""

import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest

from pih import catalog, lock, pins, profile, stale
from pih.catalog import Constraint, Manifest, Permissions, RuntimePart
from pih.cli import _errors
from pih.lock import Device, Target
from pih.resolve import locking
from pih.resolve.choice import unfit
from pih.resolve.explain import failure
from pih.resolve.outcome import DeadEnd
from pih.resolve.rules import Need
from pih.resolve.solve import solve
from pih.sizes import memory_bytes
from pih_runtime.errors import PihError
from tests.unit.lower.gguf_file import write_gguf

ROOT = Path(__file__).parents[3]
CASES = sorted((Path(__file__).parent / "conflicts").glob("*.toml"))
BASE = "qwen3-cpu-synthetic"
PROFILE = (ROOT / "profiles" / f"{BASE}.toml").read_text()
PINS = pins.load(ROOT)


def never(what):
    raise AssertionError(f"asked for {what}")


def of_the_solver(case):
    machine = case.get("device")
    device = machine and Device(
        machine["count"], machine["sm"], memory_bytes(machine["memory"]), machine.get("driver", "")
    )
    target = Target("linux", "x86_64", "x86-64-v3", 1, 1 << 30, device)
    plugins = tuple(manifest(**item) for item in case["plugin"])
    roots = [Need(**{"specifier": ">=1.0,<2", **item}) for item in case["root"]]
    end = solve(roots, plugins, lambda plugin: unfit(plugin, target, frozenset(), []))
    assert isinstance(end, DeadEnd)
    assert solve(roots, reversed(plugins), lambda plugin: unfit(plugin, target, frozenset(), [])) == end
    return failure(end, plugins)


def manifest(**given):
    defaults = {"version": "1.0", "abi": 1, "summary": "", "kind": given["id"].split("/")[0]}
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in given.pop("target", {}).items()}
    return Manifest(
        **{**defaults, "runtime": RuntimePart("p", "p:start"), **given}
        | {"target": Constraint(**lists), "permissions": Permissions(**given.get("permissions", {}))}
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for part in ("plugins", "models"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "profiles").mkdir()
    write_gguf(root / "profiles" / "llama.gguf")
    return root


def of_the_whole(case, tree):
    path = tree / "profiles" / "x.toml"
    text = PROFILE
    for old, new in case.get("edit", ()):
        assert old in text
        text = text.replace(old, new, 1)
    text += case.get("append", "")
    with changed_plugins(tree, case), pytest.raises(PihError) as caught:
        locked(text, path, tree, case.get("lock", ""))
    assert caught.value.exit_code == case["exit"]
    return caught.value


def locked(text, path, tree, earlier):
    if earlier == "edited":
        data = json.loads((ROOT / "profiles" / f"{BASE}.lock.json").read_text())
        data["limits"]["context"] = 4096
        lock.from_json(json.dumps(data), "profiles/x.lock.json")
    intent = profile.parse(text.encode(), path)
    known = catalog.load(tree)
    if earlier == "before":
        stale.check(lock.read(ROOT / "profiles" / f"{BASE}.lock.json"), intent, known)
    else:
        locking.lock(intent, known, PINS, None, fetch=never, pin=never)


class changed_plugins:  # noqa: N801 - used as a statement
    """The tree's plugins with a case's changes, while it lasts."""

    def __init__(self, tree, case):
        self.plugins = tree / "plugins"
        self.files = [
            (self.plugins / change["file"], change["old"], change["new"]) for change in case.get("catalog", ())
        ]
        self.removed = [self.plugins / name / "plugin.toml" for name in case.get("remove", ())]
        self.added = case.get("add")

    def __enter__(self):
        self.before = {path: path.read_text() for path in [*(path for path, _, _ in self.files), *self.removed]}
        for path, old, new in self.files:
            assert old in path.read_text()
            path.write_text(path.read_text().replace(old, new))
        for path in self.removed:
            path.unlink()
        if added := self.added:
            text = (self.plugins / added["like"] / "plugin.toml").read_text()
            assert added["old"] in text
            (self.plugins / added["id"]).mkdir()
            text = text.replace(added["like"], added["id"]).replace(added["old"], added["new"])
            (self.plugins / added["id"] / "plugin.toml").write_text(text)

    def __exit__(self, *_):
        for path, text in self.before.items():
            path.write_text(text)
        if self.added:
            shutil.rmtree(self.plugins / self.added["id"])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_user_reads_why_and_what_to_do(path, tree):
    case = tomllib.loads(path.read_text())
    problem = of_the_solver(case) if "root" in case else of_the_whole(case, tree)
    words = str(problem).replace(f"{tree}/", "") + "\n"
    expected = path.with_suffix(".txt")
    if os.environ.get("PIH_WRITE_WORDS"):
        expected.write_text(words)
    assert words == expected.read_text()
    assert problem.fix
    assert problem.what
    machine = _errors.described(problem)
    assert machine["exit_code"] == case.get("exit", 4)
    assert str(machine["what"]).replace(f"{tree}/", "") in words
    assert f"to fix: {machine['fix']}".replace(f"{tree}/", "") in words


WAYS = {
    "no provider": ["no-provider", "unknown-plugin", "no-device"],
    "version conflict, both chains": ["both-chains", "version", "two-versions", "optional-version"],
    "target mismatch": ["target", "wrong-os", "another-architecture", "device-memory"],
    "wrong SM": ["wrong-sm", "device-without-an-sm"],
    "driver too old": ["driver-too-old", "driver-unknown", "device-without-a-driver"],
    "NCCL asked for on one GPU": ["nccl-on-one-gpu"],
    "two surfaces on a port": ["two-surfaces-on-a-port"],
    "op without kernel": ["no-kernel", "no-kernel-for-the-isa", "no-kernel-for-the-shape"],
    "a shape past a kernel's bound": ["shape-past-a-bound", "limits-past-a-bound"],
    "int4 without a kernel": ["int4-without-a-kernel"],
    "precision": ["precision"],
    "budget": ["budget", "budget-of-weights", "budget-of-a-device", "spill-that-nobody-keeps"],
    "trust": ["trust/unsigned", "trust/unknown-key", "trust/damaged-signature", "trust/not-whole"],
    "tampered manifest": ["trust/tampered-manifest", "trust/tampered-code", "trust/tampered-catalog"],
    "revoked key": ["trust/revoked-key", "trust/rotated-key"],
    "ABI too new": ["abi-too-new", "trust/another-abi"],
    "a vendor plugin for another core version": ["trust/another-core", "trust/no-row"],
    "yanked version": ["yanked", "trust/yanked"],
    "a capability provided twice": ["taken", "conflict", "excluded"],
    "profile contradiction": ["tokens-below-batch", "fallback-named-and-forbidden", "spill-without-a-device"],
    "cycle": ["cycle"],
    "a preference that cannot be kept": [
        "preferred-for-another-isa",
        "preferred-lacks-something",
        "preferred-in-a-circle",
    ],
    "lock out of date": ["stale-profile", "stale-manifest", "stale-version", "stale-report", "stale-plugin-gone"],
    "lock edited by hand": ["edited-by-hand"],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_fail_has_its_words(way):
    folders = {"trust": ROOT / "tests/unit/trust/conflicts", "": CASES[0].parent}
    for name in WAYS[way]:
        folder, _, stem = name.rpartition("/")
        assert (folders[folder] / f"{stem}.toml").is_file()
        assert (folders[folder] / f"{stem}.txt").is_file()


def test_there_are_more_than_thirty_ways():
    assert len(CASES) > 30
    assert {path.stem for path in CASES} == {path.stem for path in CASES[0].parent.glob("*.txt")}
