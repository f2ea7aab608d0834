"""Starting a deployment's worker for `run` and `serve`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click

from pih.build.progress import renderer
from pih.bundle import client, driver, engine, permissions, run, unpacked
from pih.bundle import layout as layouts
from pih.bundle.layout import Layout
from pih.cli import _builders, _path, _workspace
from pih.lock import Lock
from pih_runtime.errors import SealError, UsageError, WorkerError

_READY_SECONDS = 120.0
_ERROR, _FIX = "pih-worker: error: ", "\n  to fix: "  # as a worker prints what ends it

engine_option = click.option(
    "--engine",
    type=click.Choice(engine.ENGINES),
    help="Run the image in a container engine instead of from its unpacked files.",
)
weights_option = click.option(
    "--weights",
    "weights_path",
    type=_path.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The packed weights, where the profile delivers them separately (see `pih weights pack`).",
)


def image_of(
    profile_path: Path, weights_path: Path | None, *, engine_name: str | None, offline: bool
) -> tuple[_workspace.Deployment, Path]:
    """The deployment and its built image.

    Refused before it is built where no worker runs it yet, this host has no driver for it, or the weights are not as
    it delivers them.
    """
    with renderer() as listener:
        found = _workspace.deployment(profile_path, offline=offline, listener=listener)
        if several := not_run_yet(found.lock):
            fix = "set device.count = 1; to see what several devices take: pih build, pih inspect, pih diff"
            raise WorkerError(several, where=found.profile.reason(_workspace.SOURCE_ROOT, "device", "count"), fix=fix)
        _check_driver(found.lock, engine_name)
        separate = found.lock.weights.delivery == "separate"
        if separate and weights_path is None:
            pack = ["pih", "weights", "pack", "--profile", str(found.profile.path)]
            raise UsageError(
                f"{found.profile.name} delivers its weights separately",
                fix=f"{shlex.join(pack)} --output FILE, then give --weights FILE",
            )
        if weights_path is not None and not separate:
            raise UsageError(f"the image of {found.profile.name} has its weights inside", fix="leave --weights out")
        built = _builders.build(found, "embedded", _workspace.IMAGE, offline=offline, jobs=0, listener=listener)
    return found, built.output


def _check_driver(lock: Lock, engine_name: str | None) -> None:
    """Raises WorkerError where the host's driver is not what the lock needs; an engine brings its libraries itself."""
    families = permissions.asked_of(plugin.permissions for plugin in lock.plugins).families
    driver.check(families, lock.target.device.driver if lock.target.device else "")
    if engine_name is None:
        driver.of_host(families)


def not_run_yet(lock: Lock) -> str:
    """Why no worker runs the deployment, or ''. Its image is whole all the same: it can be built and looked at."""
    ranks = lock.target.device.count if lock.target.device else 1
    return f"{ranks} ranks, one for each device: running several is not there yet" if ranks > 1 else ""


@contextmanager
def worker(
    image: Path, listen: run.Listen, *, engine_name: str | None, weights_path: Path | None
) -> Iterator[run.Running]:
    """The image's worker, ready, while the block runs."""
    weights = weights_path.resolve() if weights_path else None
    with _workspace.own(image), _started(engine_name, layouts.read(image), listen, weights) as running:
        try:
            client.wait_ready(running.address, running.alive, _READY_SECONDS)
        except WorkerError as problem:
            code = running.process.poll()
            kind = SealError if code == SealError.exit_code else WorkerError
            why, fix = _last_error(running.last_words())
            if code in engine.NOT_STARTED and running.refused:
                fix = running.refused
            raise kind(f"{problem.what}{': ' + why if why else ''}", fix=fix or problem.fix) from problem
        yield running


def _last_error(words: str) -> tuple[str, str]:
    """What a worker's log ends with, and what it says to do: its error, else its last lines."""
    _, found, error = words.rpartition(_ERROR)
    if not found:
        return "; ".join(words.splitlines()), ""
    what, _, fix = error.partition(_FIX)
    return what.strip(), fix.strip()


def _started(
    engine_name: str | None, image: Layout, listen: run.Listen, weights: Path | None
) -> AbstractContextManager[run.Running]:
    if engine_name:
        return engine.started(engine_name, image, listen, weights)
    return unpacked.started(image, _workspace.store(), listen, weights)
