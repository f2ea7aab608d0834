"""Bring locked artifacts into the store: mirrors first, then each purl's own source.

Each artifact is checked against the lock's sha256 and size before it enters, and enters on its own:
what is there already is never fetched again, so a broken download costs one artifact.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pih.build import apt, hf, mirror, npm, pip, purl
from pih.build.progress import Dropped, FetchAdvanced, FetchDone, FetchFailed, FetchStarted, Listener
from pih.build.store import Store, measure
from pih.lock import Artifact
from pih_runtime.errors import FetchError, ResolutionError

Source = Callable[[purl.Purl, Artifact, Path, Mapping[str, str], Callable[[int], None]], Path]
SOURCES: dict[str, Source] = {"pypi": pip.fetch, "deb": apt.fetch, "npm": npm.fetch, "huggingface": hf.fetch}
_THREADS = 4


def missing(artifacts: Iterable[Artifact], store: Store) -> list[Artifact]:
    """What is not in the store, once each, in order."""
    unique = {artifact.sha256: artifact for artifact in artifacts}
    return [artifact for artifact in unique.values() if not store.has(artifact.sha256, artifact.size)]


def fetch(
    artifacts: Iterable[Artifact],
    store: Store,
    *,
    lock_folder: Path,
    environment: Mapping[str, str],
    offline: bool,
    listener: Listener,
) -> None:
    """After this, all of them are in the store. Raises one FetchError that names each that could not be had."""
    wanted = missing(artifacts, store)
    if not wanted:
        return
    candidates = mirror.index(mirror.folders(environment))

    def from_mirror(artifact: Artifact) -> bool:
        found = mirror.find(candidates, artifact.sha256, artifact.size)
        if not found:
            return False
        listener(FetchStarted(artifact.name, artifact.size))
        store.add_file(found)
        listener(FetchDone(artifact.name, "mirror"))
        return True

    with store.workspace() as work, ThreadPoolExecutor(_THREADS) as pool:
        rest = [artifact for artifact, found in zip(wanted, pool.map(from_mirror, wanted), strict=True) if not found]
        rest = [artifact for artifact in rest if not _from_file(artifact, store, lock_folder, environment, listener)]
        if offline:
            _refuse(rest)
        problems = list(pool.map(lambda artifact: _from_sources(artifact, store, work, environment, listener), rest))
    failed = [(artifact, problem) for artifact, problem in zip(rest, problems, strict=True) if problem]
    if failed:
        _report(failed)


def drop_damaged(files: Iterable[tuple[str, str, int]], store: Store, listener: Listener) -> None:
    """Read files of the store again, and remove those that are no longer what they were. files: name, sha256, size."""
    for name, digest, size in files:
        if store.has(digest):
            try:
                store.check(digest, size)
            except FetchError:
                listener(Dropped(name))


def one(
    store: Store, *, lock_folder: Path, environment: Mapping[str, str], offline: bool, listener: Listener
) -> Callable[[Artifact], Path]:
    """A function: artifact → its file in the store, fetched if it is not there."""

    def bring(artifact: Artifact) -> Path:
        fetch([artifact], store, lock_folder=lock_folder, environment=environment, offline=offline, listener=listener)
        return store.path(artifact.sha256)

    return bring


def _from_file(
    artifact: Artifact, store: Store, lock_folder: Path, environment: Mapping[str, str], listener: Listener
) -> bool:
    """A file of the user's own, named by a path relative to the lock: needs no network."""
    for text in artifact.purls:
        wanted = purl.parse(text)
        if wanted.type != "generic":
            continue
        if artifact.kind == "plugin":
            return _from_plugin(artifact, wanted, store, lock_folder, environment, listener)
        path = lock_folder / purl.qualifier(wanted, "path")
        if not path.is_file():
            continue
        listener(FetchStarted(artifact.name, artifact.size))
        # A lock may come from somebody else and name any file: of another than the locked one nothing is told or kept.
        if measure(path) != (artifact.sha256, artifact.size):
            listener(FetchFailed(artifact.name))
            raise FetchError(
                f"the file is not the one that was locked, of {artifact.size} bytes and sha256 {artifact.sha256}",
                where=str(path),
                fix="bring the locked file back, or write the lock again: pih lock",
            )
        store.add_file(path)
        listener(FetchDone(artifact.name, "file"))
        return True
    return False


def _from_plugin(
    artifact: Artifact,
    wanted: purl.Purl,
    store: Store,
    folder: Path,
    environment: Mapping[str, str],
    listener: Listener,
) -> bool:
    """A plugin from outside the source tree: packed again from where it was found."""
    from pih.trust import places  # few locks name one

    try:
        packed = places.packed(wanted.qualifiers, folder, environment)
    except ResolutionError as problem:
        raise FetchError(problem.what, where=problem.where, fix=problem.fix) from problem
    if packed is None:
        return False
    listener(FetchStarted(artifact.name, artifact.size))
    found = packed.content.sha256
    if found != artifact.sha256:
        listener(FetchFailed(artifact.name))
        raise FetchError(
            f"{artifact.name} is not the one that was locked: sha256 {found}, the lock says {artifact.sha256}",
            where=" ".join(wanted.qualifiers.values()),
            fix="bring the locked files back, or write the lock again: pih lock",
        )
    with store.workspace() as work:
        (work / "plugin").write_bytes(packed.archive)
        store.add_file(work / "plugin")
    listener(FetchDone(artifact.name, "plugin"))
    return True


def _from_sources(
    artifact: Artifact, store: Store, work: Path, environment: Mapping[str, str], listener: Listener
) -> FetchError | None:
    """Try each purl; returns the last problem where none had it."""
    listener(FetchStarted(artifact.name, artifact.size))
    problem = FetchError("the lock names no source that can supply it")
    for text in artifact.purls:
        wanted = purl.parse(text)
        source = SOURCES.get(wanted.type)
        if source is None:
            problem = FetchError(f"there is no file {wanted.qualifiers.get('path')!r} beside the lock")
            continue
        folder = Path(tempfile.mkdtemp(dir=work))
        try:
            path = source(
                wanted, artifact, folder, environment, lambda done: listener(FetchAdvanced(artifact.name, done))
            )
            store.adopt(path, artifact.sha256, artifact.size)
        except FetchError as error:
            problem = error
        else:
            listener(FetchDone(artifact.name, wanted.type))
            return None
    listener(FetchFailed(artifact.name))
    return problem


def _refuse(rest: Sequence[Artifact]) -> None:
    if rest:
        raise FetchError(
            f"offline, and {len(rest)} of the lock's artifacts are not in the store:\n"
            + "\n".join(map(_describe, rest)),
            fix="fetch them on a host with a network (`pih fetch`), name a folder that has them in PIH_MIRROR, "
            "or `pih store add FILE`",
        )


def _report(failed: Sequence[tuple[Artifact, FetchError]]) -> None:
    fixes = list(dict.fromkeys(problem.fix for _, problem in failed if problem.fix))
    fixes = fixes or ["check the network and the clients' configuration, and run this again: what was fetched is kept"]
    lines = [f"{_describe(artifact)}\n    {problem.what}" for artifact, problem in failed]
    raise FetchError("could not fetch:\n" + "\n".join(lines), fix="; ".join(fixes))


def _describe(artifact: Artifact) -> str:
    identity = f"{artifact.name} {artifact.version} ({artifact.size} bytes, sha256 {artifact.sha256})"
    return f"  {identity}: {' or '.join(artifact.purls)}"
