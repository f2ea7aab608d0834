"""Building with Bazel: a workspace of its own for the lock, the store's files in Bazel's cache, the user's own Bazel.

The workspace is the one that tools/bazel/template shows to users, filled in: any lock can be built, wherever it lies.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from pih.build import fetch, graph, made, outer, seed
from pih.build.progress import Listener, StepDone, StepFailed, StepStarted
from pih.build.store import Store
from pih.lock import Artifact, Lock
from pih_runtime.errors import BuildError

TEMPLATE = "tools/bazel/template"
_TEMPLATE_WORDS = re.compile(r"\.\./pih|chat")
_PACKAGE = "Bazel (Debian: bazel-bootstrap)"
_FIX = "is the `bazel` in PATH Bazel's own program?"
_PLAIN = "not every Bazel works in a folder whose path has spaces, or other than ASCII characters"
_LINES = 30
_IDLE = 900  # seconds that Bazel's server waits for the next build; it holds hundreds of megabytes of memory
# A user's own .bazelrc may say otherwise, and the link would be that of a build before.
_LINKS = ["--symlink_prefix=.bazel/", "--experimental_convenience_symlinks=normal"]
_CACHED = ("cacheHit", "remoteCacheHit")  # Bazel 7's word, and Bazel 4's


@attrs.frozen
class Result:
    """A finished build. output: of the target, in the store. ran: the steps that no cache had."""

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
    graph.check_sizes(lock, store)
    steps = graph.closure(lock.build.steps, target)
    graph.check_sources(steps, source_root)
    artifacts = graph.outside(lock, steps)
    fetch.fetch(
        artifacts, store, lock_folder=lock_path.parent, environment=environment, offline=offline, listener=listener
    )
    seed.fill(lock, store)
    cache = fill_cache([*(artifact.sha256 for artifact in artifacts), lock.build.seed.sha256], store)
    name = lock.profile.name
    last = lock.build.steps[-1].id == target
    label = name if last else f"{name}.steps/{target}"
    own = outer.name(name, lock_path, source_root)
    workspace = store.root / "bazel" / "workspaces" / own
    with outer.alone(workspace.with_name(f"{workspace.name}.lock")):
        write_workspace(workspace, name, lock_path, source_root)
        log = workspace / ".executed.json"
        options = [
            *cache_options(cache),
            *_LINKS,
            *sandbox_options(source_root),
            f"--execution_log_json_file={log}",
            *([f"--jobs={jobs}"] if jobs else []),
        ]
        log.unlink(missing_ok=True)
        try:
            _run(
                ["bazel", *startup_options(store, own), "build", *options, f"//:{label}"],
                workspace,
                environment,
                listener,
            )
        except BuildError:
            check_files(lock, artifacts, store)
            raise
        output = (workspace / ".bazel/bin").resolve() / label
        ran = _ran(log)
        return Result(_kept(output if last else output / "output", target, store, listener), ran)


def check_files(lock: Lock, artifacts: Iterable[Artifact], store: Store) -> None:
    """Bazel found something wrong with a file, or something else did: raises FetchError where one was damaged."""
    held = {artifact.sha256: artifact.size for artifact in artifacts} | {lock.build.seed.sha256: lock.build.seed.size}
    for digest, size in held.items():
        store.check(digest, size)


def _kept(output: Path, target: str, store: Store, listener: Listener) -> Path:
    """A copy in the store of what Bazel made: its own is gone with the next build of the workspace."""
    key = hashlib.sha256(json.dumps(["bazel", str(output), made.stamp(output)]).encode()).hexdigest()
    if found := made.find(store, "steps", key, name=target, listener=listener):
        return found.path
    with store.workspace() as work:
        entry = work / "entry"
        entry.mkdir()
        try:
            if output.is_dir():
                shutil.copytree(output, entry / "output", symlinks=True)
            else:
                shutil.copy2(output, entry / "output")
        except FileNotFoundError:
            raise BuildError("bazel ended well and left no output", where=str(output), fix=_FIX) from None
        facts = {"step": target, "builder": "bazel"}
        return made.publish(store, entry, "steps", key, name=target, listener=listener, facts=facts).path


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


def startup_options(store: Store, workspace: str) -> list[str]:
    """Options of `bazel`: what it makes for a workspace lies in the store, and its server ends soon after a build."""
    return [f"--output_base={store.root / 'bazel' / 'outputs' / workspace}", f"--max_idle_secs={_IDLE}"]


def cache_options(cache: Path) -> list[str]:
    """Options of `bazel build`: take files from the cache, by links."""
    return [f"--repository_cache={cache}", "--experimental_repository_cache_hardlinks"]


def sandbox_options(source_root: Path) -> list[str]:
    """Options of `bazel build`: the sandbox of Bazel 7 has a /tmp of its own, without a checkout that lies there."""
    place = str(source_root.resolve()).replace(":", "\\:")  # a colon ends the first path of a pair
    hidden = place.startswith("/tmp/")  # noqa: S108 - asked of, not written to
    return [f"--sandbox_add_mount_pair={place}"] if hidden else []


def write_workspace(workspace: Path, name: str, lock_path: Path, source_root: Path) -> None:
    """The template, with this lock and this checkout of PIH; what has not changed is left alone."""
    workspace.mkdir(parents=True, exist_ok=True)
    words = {"../pih": json.dumps(str(source_root), ensure_ascii=False)[1:-1], "chat": name}
    files = {f"{name}.lock.json": lock_path.read_text("utf-8")}
    for path in sorted((source_root / TEMPLATE).iterdir()):
        files[path.name] = _TEMPLATE_WORDS.sub(lambda found: words[found[0]], path.read_text("utf-8"))
    for file, text in files.items():
        path = workspace / file
        if not path.exists() or path.read_text("utf-8") != text:
            beside = workspace / f".{file}.part"
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)


def _ran(log: Path) -> tuple[str, ...]:
    try:
        return tuple(executed(log.read_text("utf-8")))
    except (OSError, ValueError, LookupError, TypeError) as problem:
        raise BuildError("bazel ended well and left no log of what it ran", where=str(log), fix=_FIX) from problem


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
    listener(StepStarted(command[0]))
    started = time.monotonic()
    code, _, said = outer.run(command, _lines, environment=environment, package=_PACKAGE, cwd=workspace)
    if code:
        listener(StepFailed(command[0]))
        raise BuildError("\n    ".join(["bazel failed:", *said]), where=str(workspace), fix=_fix(workspace))
    listener(StepDone(command[0], time.monotonic() - started, cached=False))


def _fix(workspace: Path) -> str:
    """What to do where Bazel's own words do not say it, or ''."""
    plain = str(workspace).isascii() and not re.search(r"\s", str(workspace))
    return "" if plain else f"{_PLAIN}: set PIH_STORE to a folder without them"


def _lines(stream: Iterable[str]) -> tuple[str, ...]:
    return tuple(deque((line.rstrip() for line in stream if line.strip()), maxlen=_LINES))
