"""Building with Bazel: a workspace of its own for the lock, the store's files in Bazel's cache, the user's own Bazel.

The workspace is the one that tools/bazel/template shows to users, filled in: any lock can be built, wherever it lies.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import attrs

from pih.build import fetch, graph, seed
from pih.build.progress import Listener, StepDone, StepFailed, StepStarted
from pih.build.store import Store
from pih.lock import Lock
from pih_runtime.errors import BuildError

TEMPLATE = "tools/bazel/template"
_LINES = 30
_CACHED = ("cacheHit", "remoteCacheHit")  # Bazel 7's word, and Bazel 4's


@attrs.frozen
class Result:
    """A finished build. output: of the target, in Bazel's tree. ran: the steps that no cache had."""

    output: Path
    ran: tuple[str, ...]


def preload(lock: Lock, store: Store) -> Path:
    """Hand the lock's files to Bazel; returns the repository cache that holds them.

    Bazel reads the store by itself as well, and then keeps copies. What the store has not is left out: weights that are
    delivered separately may be packed elsewhere.
    """
    sizes = {artifact.sha256: artifact.size for artifact in lock.artifacts}
    sizes[lock.build.seed.sha256] = lock.build.seed.size
    return fill_cache([digest for digest, size in sizes.items() if store.has(digest, size)], store)


def build(
    lock: Lock,
    lock_path: Path,
    source_root: Path,
    store: Store,
    *,
    target: str,
    jobs: int,
    offline: bool,
    environment: Mapping[str, str],
    listener: Listener,
) -> Result:
    """Build the step `target` with all it is made from. jobs 0: as Bazel sees fit.

    Raises FetchError, or BuildError with Bazel's last words.
    """
    graph.check(lock)
    steps = graph.closure(lock.build.steps, target)
    graph.check_programs(steps, source_root)
    artifacts = graph.outside(lock, steps)
    fetch.fetch(
        artifacts, store, lock_folder=lock_path.parent, environment=environment, offline=offline, listener=listener
    )
    seed.fill(lock, store)
    cache = fill_cache([*(artifact.sha256 for artifact in artifacts), lock.build.seed.sha256], store)
    workspace = write_workspace(lock.profile.name, lock_path, source_root, store)
    last = lock.build.steps[-1].id == target
    name = lock.profile.name if last else f"{lock.profile.name}.steps/{target}"
    log = workspace / ".executed.json"
    options = [*cache_options(cache), f"--execution_log_json_file={log}", *([f"--jobs={jobs}"] if jobs else [])]
    log.unlink(missing_ok=True)
    _run(["bazel", "build", *options, f"//:{name}"], workspace, environment, listener)
    ran = tuple(executed(log.read_text("utf-8")))
    output = (workspace / ".bazel/bin").resolve() / name
    return Result(output if last else output / "output", ran)


def fill_cache(digests: Sequence[str], store: Store) -> Path:
    """Bazel's repository cache with these files of the store: links to them where the user may, so one copy on disk."""
    cache = store.root / "bazel" / "repository-cache"
    for digest in digests:
        ours, theirs = store.path(digest), cache / "content_addressable" / "sha256" / digest / "file"
        theirs.parent.mkdir(parents=True, exist_ok=True)
        if theirs.exists() and theirs.samefile(ours):
            continue
        with store.workspace() as work:
            try:
                os.link(ours, work / "file")
            except OSError:  # another user's store
                if theirs.exists():
                    continue
                shutil.copyfile(ours, work / "file")
            (work / "file").replace(theirs)
    return cache


def cache_options(cache: Path) -> list[str]:
    """Options of `bazel build`: take files from the cache, by links."""
    return [f"--repository_cache={cache}", "--experimental_repository_cache_hardlinks"]


def write_workspace(name: str, lock_path: Path, source_root: Path, store: Store) -> Path:
    """The template, with this lock and this checkout of PIH; what has not changed is left alone."""
    workspace = store.root / "bazel" / "workspaces" / name
    workspace.mkdir(parents=True, exist_ok=True)
    root = json.dumps(str(source_root), ensure_ascii=False)[1:-1]
    files = {f"{name}.lock.json": lock_path.read_text("utf-8")}
    for path in sorted((source_root / TEMPLATE).iterdir()):
        files[path.name] = path.read_text("utf-8").replace("../pih", root).replace("chat", name)
    for file, text in files.items():
        path = workspace / file
        if not path.exists() or path.read_text("utf-8") != text:
            beside = workspace / f".{file}.part"
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
    return workspace


def executed(log: str) -> Iterator[str]:
    """The steps that Bazel's execution log says were run: not those that a remote cache had."""
    for action in _documents(log):
        if action["mnemonic"] == "PihStep" and not any(action.get(word) for word in _CACHED):
            _, found, step = action["listedOutputs"][0].rpartition(".steps/")
            yield step if found else "image"


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects, one after another."""
    decoder, place = json.JSONDecoder(), 0
    while rest := text[place:].lstrip():
        place = len(text) - len(rest)
        document, place = decoder.raw_decode(text, place)
        yield document


def _run(command: Sequence[str], workspace: Path, environment: Mapping[str, str], listener: Listener) -> None:
    """Run Bazel, which is one event for the listener: it does not say when a step ends. Raises BuildError."""
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        raise BuildError(
            "bazel is not installed",
            fix="install Bazel (Debian: bazel-bootstrap), or build with the embedded builder",
        )
    listener(StepStarted(command[0]))
    started = time.monotonic()
    with Popen(
        command, cwd=workspace, env=dict(environment), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True
    ) as process:
        assert process.stderr
        said = [line.rstrip() for line in process.stderr if line.strip()]
    if process.returncode:
        listener(StepFailed(command[0]))
        raise BuildError("\n    ".join(["bazel failed:", *said[-_LINES:]]), where=str(workspace))
    listener(StepDone(command[0], time.monotonic() - started, cached=False))
