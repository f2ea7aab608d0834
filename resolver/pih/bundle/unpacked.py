"""A worker from an unpacked bundle: under bwrap, or started by its own ld.so where bwrap cannot work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pih.build import interpreter, made, progress
from pih.build.store import Store
from pih.bundle import driver, run
from pih.bundle.driver import Driver
from pih.bundle.layout import Layout
from pih.bundle.permissions import Grants
from pih.bundle.unpack import read_again, unpack
from pih_runtime.errors import SealError

_USER = "65532"


@contextmanager
def started(image: Layout, store: Store, listen: run.Listen, weights: Path | None) -> Iterator[run.Running]:
    """The image's worker while the block runs. weights: the file where they are delivered apart."""
    run.check_host(image)
    grants = run.granted(image, listen)
    given = driver.of_host(grants.families)
    with progress.lines(sys.stderr) as listener:
        root = unpack(image, store, listener)
        reason = bwrap_trouble()
        if reason:
            sys.stderr.write(f"pih: without a sandbox: {reason}\n")
        prepared = _root_with(root, store, weights) if reason else _root_to_mount_on(root, store, grants, given)
        with made.held(root), prepared as own:
            worker = (
                _directly(image, own, listen, grants, given)
                if reason
                else _under_bwrap(image, own, listen, weights, grants, given)
            )
            try:
                yield worker
            finally:
                if worker.stop() == SealError.exit_code:
                    read_again(image, store, listener)


def bwrap_trouble() -> str:
    """Why bwrap cannot be used here; '' where it can."""
    try:
        trial = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        tried = subprocess.run(trial, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "bwrap is not installed (package bubblewrap)"
    if tried.returncode == 0:
        return ""
    said = tried.stderr.strip().splitlines()
    return f"bwrap does not work on this host ({said[-1] if said else f'exit code {tried.returncode}'})"


def bound(grants: Grants, given: Driver) -> list[str]:
    """Bwrap's arguments for what the lock lets the worker reach."""
    devices = [word for path in (*grants.devices, *given.nodes) for word in ("--dev-bind", path, path)]
    files = [*((path, path) for path in grants.paths), *((str(path), place) for path, place in given.libraries)]
    return devices + [word for path, place in files for word in ("--ro-bind", path, place)]


def _under_bwrap(
    image: Layout, root: Path, listen: run.Listen, weights: Path | None, grants: Grants, given: Driver
) -> run.Running:
    reader, writer = os.pipe()
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--as-pid-1", "--info-fd", str(writer)]
    command += ["--uid", _USER, "--gid", _USER, "--cap-drop", "ALL", "--hostname", "pih"]
    command += ["--ro-bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - inside
    command += bound(grants, given)
    if weights is not None:
        command += ["--tmpfs", str(Path(run.WEIGHTS_FILE).parent)]
    command += [word for path, place in run.mounts(weights) for word in ("--ro-bind", str(path), place)]
    match listen:
        case run.Private(folder):
            command += ["--bind", str(folder), run.INNER_FOLDER]
            inner = f"unix:{run.INNER_FOLDER}/{run.SOCKET}"
        case run.Public():
            command += ["--share-net"]
            inner = listen.address
    command += ["--chdir", "/", "--clearenv"]
    for name, value in (run.environment_of(image) | grants.variables()).items():
        command += ["--setenv", name, value]
    try:
        process, log = run.spawn([*command, *run.arguments_of(image), "--listen", inner], listen, pass_fds=(writer,))
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        worker = _worker_of(stream.read())
    # bwrap itself passes no signal on: the worker, PID 1 of its namespace, is told to stop.
    return run.Running(listen.address, process, log, lambda: _terminate(worker), process.kill)


def _worker_of(info: bytes) -> int | None:
    """The worker's process id as bwrap tells it; None where bwrap ended before."""
    try:
        return int(json.loads(info)["child-pid"])
    except (ValueError, LookupError):
        return None


def _terminate(worker: int | None) -> None:
    if worker is not None:
        try:
            os.kill(worker, signal.SIGTERM)
        except ProcessLookupError:  # it has just ended by itself
            return


def _directly(image: Layout, root: Path, listen: run.Listen, grants: Grants, given: Driver) -> run.Running:
    """The bundle's own Python on the bundle's own C library; the host's files are in sight."""
    program = root / run.arguments_of(image)[0].lstrip("/")
    command = [*interpreter.command(root, given.folders), str(program), "--listen", listen.address]
    process, log = run.spawn(command, listen, run.environment_of(image) | grants.variables())
    terminate = run.signal_process(process, signal.SIGTERM)
    return run.Running(listen.address, process, log, terminate, process.kill)


@contextmanager
def _root_to_mount_on(root: Path, store: Store, grants: Grants, given: Driver) -> Iterator[Path]:
    """The root with a place for each granted path: where it has none, a tree of hard links that has."""
    places = [*grants.paths, *(place for _, place in given.libraries)]
    missing = [path for path in places if not (root / path.lstrip("/")).exists()]
    if not missing:
        yield root
        return
    with store.workspace() as work:
        own = work / "root"
        shutil.copytree(root, own, symlinks=True, copy_function=os.link)
        for path in missing:
            place = own / path.lstrip("/")
            folder = place if Path(path).is_dir() else place.parent
            folder.mkdir(parents=True, exist_ok=True)
            if folder != place:
                place.touch()
        yield own


@contextmanager
def _root_with(root: Path, store: Store, weights: Path | None) -> Iterator[Path]:
    """The root with the weights in their place: nothing can be mounted, so it is a tree of hard links."""
    if weights is None:
        yield root
        return
    with store.workspace() as work:
        own = work / "root"
        shutil.copytree(root, own, symlinks=True, copy_function=os.link)
        for path, place in run.mounts(weights):
            (own / place.lstrip("/")).symlink_to(path.absolute())
        yield own
