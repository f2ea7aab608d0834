"""Building with Nix: the lock's files handed to the Nix store, then `default.nix` by the user's own Nix.

Only commands that every Nix has are run (`nix-build` and its siblings), with the user's own configuration.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from pih.build import fetch, graph, nix_log, outer, seed
from pih.build.progress import Listener, silent
from pih.build.store import Store
from pih.lock import Lock
from pih_runtime.errors import BuildError, LockError

_PACKAGE = "Nix (Debian: nix-bin)"
_NO_STORE = re.compile("error: .*(build-users-group|/nix/var/)")
ON_THE_HOST = (
    "as root and without Nix's daemon, /etc/nix/nix.conf needs the lines of docs/howto/build-with-nix.md, "
    "`build-users-group =` among them; as another user, the daemon must run"
)
_HASH = 33  # in the name of a store path: 32 characters and a dash
_STORE_NAME = re.compile(r"[0-9a-z]{32}-")


@attrs.frozen
class Result:
    """A finished build. output: of the target, in the Nix store. ran: the derivations that had to be built."""

    output: Path
    ran: tuple[str, ...]


@attrs.frozen
class _File:
    """A locked file, and where the Nix store has it."""

    path: str
    sha256: str
    size: int


def preload(lock_path: Path, source_root: Path, store: Store, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Hand the lock's files to Nix, whose builds then fetch nothing; returns the paths that Nix had not yet.

    What the store has not is left out: weights that are delivered separately may be packed elsewhere. What Nix had is
    read: raises BuildError where it was damaged, which no command of Nix mends.
    """
    held, absent = _held(lock_path, source_root, environment)
    if held:
        _verify(held, environment)
    files = [file for file in absent if store.has(file.sha256, file.size)]
    _hand_over(files, store, environment)
    return tuple(file.path for file in files)


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
    """Build the step `target` with all it is made from. jobs 0: as Nix is configured.

    A link below the store keeps the output from Nix's garbage collection. Raises FetchError, or BuildError with Nix's
    last words.
    """
    graph.check(lock)
    graph.check_sizes(lock, store)
    steps = graph.closure(lock.build.steps, target)
    graph.check_sources(steps, source_root)
    artifacts = graph.outside(lock, steps)
    wanted = {artifact.sha256 for artifact in artifacts} | {lock.build.seed.sha256}
    held, absent = _held(lock_path, source_root, environment)
    _check_sizes(held, environment)
    absent = [file for file in absent if file.sha256 in wanted]
    if absent:
        fetch.fetch(
            artifacts,
            store,
            lock_folder=lock_path.parent,
            environment=environment,
            offline=offline,
            listener=listener,
        )
        seed.fill(lock, store)
        _hand_over(absent, store, environment)
    link = store.root / "nix" / f"{outer.name(lock.profile.name, lock_path, source_root)}-{target}"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)  # Nix replaces no link into another store than its own
    limit = ["--max-jobs", str(jobs)] if jobs else []
    alone = ["--option", "substitute", "false"] if offline else []
    command = ["nix-build", "--log-format", "internal-json", "--out-link", str(link), *alone, *limit]
    output, ran = _run([*command, *_bundle(lock_path, source_root, f"steps.{target}")], environment, listener)
    if not output.strip():
        raise _misled("nix-build")
    return Result(Path(output.split()[-1]), ran)


def holds(output: Path) -> bool:
    """Whether a path is one of a Nix store, wherever that is."""
    return bool(_STORE_NAME.match(output.resolve().name))


def let_go(output: Path, store: Store) -> str:
    """What to do where an output in the Nix store is damaged; the store's own links keep it there no longer."""
    path = output.resolve()
    for link in (store.root / "nix").glob("*"):
        if link.is_symlink() and link.resolve() == path:
            link.unlink()
    delete = f"nix-store --delete $(nix-store --query --referrers-closure {shlex.quote(str(path))})"
    return f"it is damaged in Nix's store: remove it there, then build again: {delete}"


def _held(lock_path: Path, source_root: Path, environment: Mapping[str, str]) -> tuple[list[_File], list[_File]]:
    """The locked files that the Nix store has, and those that it has not; default.nix says where they belong."""
    evaluate = ["nix-instantiate", "--eval", "--strict", "--json", *_bundle(lock_path, source_root, "locked")]
    try:
        files = {entry["path"]: _File(**entry) for entry in json.loads(_run(evaluate, environment)[0])}
    except (ValueError, TypeError) as problem:
        raise _misled(evaluate[0]) from problem
    invalid = _run(["nix-store", "--check-validity", "--print-invalid", *files], environment)[0].split()
    return (
        [file for path, file in files.items() if path not in invalid],
        [file for path, file in files.items() if path in invalid],
    )


def _check_sizes(files: Iterable[_File], environment: Mapping[str, str]) -> None:
    """Raises LockError where a file of the Nix store is whole, and of another size than the lock says."""
    for file in files:
        with suppress(FileNotFoundError):  # a store that only Nix itself can read
            found = Path(file.path).stat().st_size
            if found != file.size:
                _verify([file], environment)
                what = f"the lock says {file.size} bytes, and the file of this digest has {found}"
                raise LockError(what, where=file.path, fix="write the lock again: pih lock")


def _verify(files: Iterable[_File], environment: Mapping[str, str]) -> None:
    try:
        _run(["nix-store", "--verify-path", *(file.path for file in files)], environment)
    except BuildError as problem:
        fix = "remove it, with what refers to it (nix-store --delete PATH), and run this again"
        raise BuildError(problem.what, fix=fix) from None


def _hand_over(files: Iterable[_File], store: Store, environment: Mapping[str, str]) -> None:
    """Add files of the store to the Nix store."""
    with store.workspace() as work:
        named = {file: work / Path(file.path).name[_HASH:] for file in files}
        for file, name in named.items():
            os.link(store.path(file.sha256), name)
        added = _run(["nix-store", "--add-fixed", "sha256", *map(str, named.values())], environment)[0].split()
        for file in named:
            if file.path not in added:
                store.check(file.sha256, file.size)
            _share(Path(file.path), store.path(file.sha256), work / "shared")


def _share(theirs: Path, ours: Path, beside: Path) -> None:
    """Keep one copy on disk where both stores may hold the same file: neither ever writes to a file again."""
    try:
        os.link(theirs, beside)
    except OSError:  # another file system, or root's files, which not every user may link: then there are two copies
        return
    beside.replace(ours)


def _bundle(lock_path: Path, source_root: Path, attribute: str) -> list[str]:
    """Arguments that name an attribute of the lock's bundle; a path with spaces is no path literal of Nix."""
    text = json.dumps(str(lock_path.absolute()), ensure_ascii=False).replace("$", "\\$")
    return [str(source_root / "default.nix"), "--arg", "lock", f"/. + {text}", "--attr", attribute]


def _run(
    command: Sequence[str], environment: Mapping[str, str], listener: Listener = silent
) -> tuple[str, tuple[str, ...]]:
    """What a command of Nix printed, and what it built; raises BuildError with its last words."""
    code, output, told = outer.run(
        command, lambda lines: nix_log.follow(lines, listener), environment=environment, package=_PACKAGE
    )
    if code:
        fix = ON_THE_HOST if any(map(_NO_STORE.match, told.said)) else ""
        raise BuildError("\n    ".join([f"{command[0]} failed:", *told.said]), fix=fix)
    return output, told.built


def _misled(command: str) -> BuildError:
    return BuildError(
        f"{command} ended well and did not say what it was asked", fix=f"is the `{command}` in PATH Nix's own program?"
    )
