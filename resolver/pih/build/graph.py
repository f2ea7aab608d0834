"""Keys of build steps: what a step depends on, as one digest.

Inputs from other steps count by the digest of their output, not by their key: a step that is
run again and gives the same bytes causes no further work.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pih.build import tree as disk
from pih.build.store import Store, measure
from pih.lock import Artifact, Lock, Step
from pih_runtime.errors import BuildError, FetchError, LockError
from pih_steps.spec import LOCK_TREE, check_tree

# Part of every key: raised when what a runner does for a step changes.
RUNNER = 1
# Every step's program; a step may declare parts of these instead, and then sees no others.
PROGRAM = ("resolver/pih_steps", "runtime/pih_runtime")
_WORD = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")
_PROFILE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_LARGEST = 1 << 43  # bytes of one file: eight tebibytes
TARGETS = ("linux/x86_64",)  # that steps build for


def check(lock: Lock) -> None:
    """Every name is one, every input is there and comes before what takes it; raises LockError.

    Whoever edits a lock can seal it again: names become paths, so they are looked at before anything is done with them.
    """

    def fail(what: str) -> LockError:
        return LockError(what, where=lock.profile.name, fix="write the lock again: pih lock")

    if not _PROFILE.match(lock.profile.name):
        raise LockError(f"{lock.profile.name!r} is no name of a profile", fix="write the lock again: pih lock")
    target = f"{lock.target.os}/{lock.target.arch}"
    if target not in TARGETS:
        raise fail(f"the target {target} is not supported, but {' and '.join(TARGETS)} is")
    names: set[str] = set()
    sizes: dict[str, int] = {}
    for artifact in lock.artifacts:
        if what := _unsound(artifact):
            raise fail(what)
        if artifact.name in names:
            raise fail(f"two artifacts {artifact.name!r}")
        names.add(artifact.name)
        if sizes.setdefault(artifact.sha256, artifact.size) != artifact.size:
            raise fail(f"two sizes for the sha256 of artifact {artifact.name!r}")
    build = lock.build
    if not build.steps:
        raise fail("the lock has no build steps")
    if not build.interpreter:
        raise fail("the lock names no packages of an interpreter")
    if unknown := [name for name in build.interpreter if name not in names]:
        raise fail(f"the interpreter needs {unknown[0]!r}, which the lock does not list")
    if build.seed.deb not in names:
        raise fail(f"the seed is made from {build.seed.deb!r}, which the lock does not list")
    if not _SHA256.match(build.seed.sha256) or not 0 <= build.seed.size <= _LARGEST:
        raise fail("the seed has no sha256 and size")
    limits = lock.limits
    same = {
        "expected_plan_sha256": lock.plan.sha256,
        "arch": lock.target.arch,
        "limits": {"tokens": limits.tokens, "seqs": limits.batch, "context": limits.context},
        "kv_dtype": limits.kv_dtype,
        "spill": limits.spill,
    }
    before: set[str] = set()
    for step in build.steps:
        for what, word in (("a build step", step.id), ("the program of a build step", step.run)):
            if not _WORD.match(word):
                raise fail(f"{word!r} cannot name {what}")
        if step.id in before:
            raise fail(f"two build steps {step.id!r}")
        if unknown := [name for name in (*step.artifacts, *step.tools) if name not in names]:
            raise fail(f"step {step.id!r} needs artifact {unknown[0]!r}, which the lock does not list")
        if unknown := [name for name in step.steps if name not in before]:
            raise fail(f"step {step.id!r} needs step {unknown[0]!r}, which does not come before it")
        if outside := [tree for tree in step.trees if not _is_below(tree)]:
            raise fail(f"step {step.id!r} names a tree outside the source tree, or all of it: {outside[0]!r}")
        for key, said in same.items():
            if step.params.get(key, said) != said:
                raise fail(f"step {step.id!r} has {key} {step.params[key]!r:.100}, the lock {said!r}")
        before.add(step.id)


def check_sizes(lock: Lock, store: Store) -> None:
    """Raises LockError where a file of the store is what the lock's digest says, and of another size.

    One that was damaged is dropped, to be fetched again.
    """
    sizes = [(artifact.sha256, artifact.size) for artifact in lock.artifacts]
    for digest, size in (*sizes, (lock.build.seed.sha256, lock.build.seed.size)):
        if store.has(digest) and not store.has(digest, size):
            with suppress(FetchError):
                store.check(digest, size)


def _unsound(artifact: Artifact) -> str:
    """What is wrong with an artifact's entry; '' where nothing is."""
    if not artifact.name or not artifact.name.isprintable():
        return f"{artifact.name!r} cannot name an artifact"
    if not _SHA256.match(artifact.sha256):
        return f"artifact {artifact.name!r} has no sha256: {artifact.sha256!r}"
    if not 0 <= artifact.size <= _LARGEST:
        return f"artifact {artifact.name!r} has the size {artifact.size}"
    return ""


def _is_below(tree: str) -> bool:
    """A plain path of something inside a folder, not the folder itself."""
    return tree.isprintable() and not {"", ".", ".."} & set(tree.split("/"))


def check_sources(steps: Sequence[Step], source_root: Path) -> None:
    """Every step's program is in the source tree, or LockError; each tree is one to every builder, or BuildError."""
    for step in steps:
        if not (source_root / PROGRAM[0] / f"{step.run}.py").is_file():
            raise LockError(
                f"step {step.id!r} runs {step.run!r}, which is no program of this source tree",
                fix="write the lock again: pih lock",
            )
    for tree in sorted({tree for step in steps for tree in trees_of(step)} - {LOCK_TREE}):
        check_tree(source_root, tree)


def closure(steps: Sequence[Step], target: str) -> tuple[Step, ...]:
    """The step `target` and all it is made from, in the graph's order; raises LockError where there is none."""
    if target not in {step.id for step in steps}:
        raise LockError(f"the lock has no build step {target!r}", fix="write the lock again: pih lock")
    needed = {target}
    for step in reversed(steps):  # an input comes before what takes it
        if step.id in needed:
            needed.update(step.steps)
    return tuple(step for step in steps if step.id in needed)


def outside(lock: Lock, steps: Iterable[Step]) -> list[Artifact]:
    """The artifacts that an outer builder needs for these steps: theirs, the interpreter's, and the seed's package."""
    names = {*lock.build.interpreter, lock.build.seed.deb}
    names |= {name for step in steps for name in (*step.artifacts, *step.tools)}
    return [artifact for artifact in lock.artifacts if artifact.name in names]


def trees_of(step: Step) -> tuple[str, ...]:
    """The source trees a step sees: its own, and the program of the steps where it declares no part of that."""
    missing = [tree for tree in PROGRAM if not any(own == tree or own.startswith(tree + "/") for own in step.trees)]
    return tuple(sorted({*step.trees, *missing}))


def tree_digests(steps: Iterable[Step], source_root: Path, lock_path: Path) -> dict[str, str]:
    """Digest of each source tree that the steps name."""
    paths = {tree: tree_path(tree, source_root, lock_path) for step in steps for tree in trees_of(step)}
    return {tree: digest_of(path) for tree, path in sorted(paths.items())}


def tree_path(tree: str, source_root: Path, lock_path: Path) -> Path:
    """Where a named tree lies; 'lock' is the lock file itself."""
    path = lock_path if tree == LOCK_TREE else source_root / tree
    if not path.exists():
        raise BuildError(f"the source tree {tree!r} is not there", where=str(path), fix="check out the whole project")
    return path


def files_of(path: Path) -> list[tuple[str, Path]]:
    """(relative path, path) of the files and links below `path`, sorted; ('', path) where it is a file.

    Python's bytecode caches are left out: they come and go with use.
    """
    if not path.is_dir():
        return [("", path)]
    found = []
    for entry in disk.below(path):
        name = os.path.relpath(entry.path, path)
        cache = "__pycache__" in name.split("/") or name.endswith(".pyc")
        if not cache and not entry.is_dir(follow_symlinks=False):
            found.append((name, Path(entry.path)))
    return sorted(found)


def digest_of(path: Path) -> str:
    """Digest of a file or tree of sources: relative paths, executable bits and bytes. Times and owners do not count."""
    return _digest(files_of(path))


def output_digest(path: Path) -> str:
    """Digest of a step's output: every file counts, whatever its name."""
    if not path.is_dir():
        return _digest([("", path)])
    entries = [entry for entry in disk.below(path) if entry.is_symlink() or entry.is_file()]
    named = [(os.path.relpath(entry.path, path), Path(entry.path)) for entry in entries]
    return _digest(sorted(named, key=lambda pair: pair[0].split("/")))


def _digest(files: list[tuple[str, Path]]) -> str:
    lines = []
    for name, path in files:
        if path.is_symlink():
            lines.append(["link", name, str(path.readlink())])
        else:
            lines.append(["executable" if os.access(path, os.X_OK) else "file", name, measure(path)[0]])
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


def step_key(
    step: Step, artifacts: Mapping[str, str], trees: Mapping[str, str], outputs: Mapping[str, str], interpreter: str
) -> str:
    """The key of a step. artifacts: name → sha256. trees: name → digest. outputs: step id → digest of its output."""
    inputs = {
        "runner": RUNNER,
        "interpreter": interpreter,
        "run": step.run,
        "params": step.params,
        "artifacts": {name: artifacts[name] for name in step.artifacts},
        "tools": [artifacts[name] for name in step.tools],
        "trees": {name: trees[name] for name in trees_of(step)},
        "steps": {name: outputs[name] for name in step.steps},
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
