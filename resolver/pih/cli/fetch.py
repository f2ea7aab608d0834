"""`pih fetch`: bring a lock's artifacts into the store, so that a build needs no network."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from pih.build import bazel, fetch, graph, nix, seed
from pih.build.progress import renderer
from pih.build.store import Store
from pih.cli import _workspace
from pih.lock import Artifact, Lock


@click.command(epilog="Example: pih fetch --profile profiles/smollm2-cpu.toml && pih build --offline --profile ...")
@_workspace.profile_option
@click.option("--builder", type=click.Choice(["bazel", "nix"]), help="Also hand the artifacts to this builder.")
@click.option("--weights", is_flag=True, help="Also the checkpoint of weights that are delivered separately.")
@_workspace.offline_option
@_workspace.json_option
def command(profile_path: Path, builder: str | None, weights: bool, offline: bool, as_json: bool) -> None:
    """Download every artifact that building a profile needs, with any builder.

    What is in the store is read, and fetched again where it was damaged since.
    """
    with renderer() as listener:
        found = _workspace.deployment(profile_path, offline=offline, listener=listener)
        targets = (_workspace.IMAGE, _workspace.WEIGHTS) if weights else (_workspace.IMAGE,)
        steps = [step for target in targets for step in graph.closure(found.lock.build.steps, target)]
        wanted = graph.outside(found.lock, steps)
        shelf = _workspace.store()
        fetch.drop_damaged(_files(found.lock, wanted), shelf, listener)
        brought = fetch.missing(wanted, shelf)
        fetch.fetch(
            wanted,
            shelf,
            lock_folder=found.lock_path.parent,
            environment=os.environ,
            offline=offline,
            listener=listener,
        )
        seed.fill(found.lock, shelf)
        options = _hand_over(builder, found, shelf)
    total = sum(artifact.size for artifact in wanted)
    if as_json:
        rows = [{"name": a.name, "sha256": a.sha256, "path": str(shelf.path(a.sha256))} for a in wanted]
        click.echo(json.dumps({"fetched": [a.name for a in brought], "artifacts": rows, "options": options}, indent=2))
        return
    click.echo(f"{len(wanted)} artifacts, {total / 1e6:.1f} MB, {len(brought)} of them fetched now: {shelf.root}")
    if options:
        click.echo(f"{builder} takes them with  {shlex.join(options)}")


def _files(lock: Lock, wanted: Iterable[Artifact]) -> Iterator[tuple[str, str, int]]:
    seed = lock.build.seed
    yield from ((artifact.name, artifact.sha256, artifact.size) for artifact in wanted)
    yield f"the seed that is made from {seed.deb}", seed.sha256, seed.size


def _hand_over(builder: str | None, found: _workspace.Deployment, shelf: Store) -> list[str]:
    """The files that the store has of the lock, to a builder; the options that this needs where it is run by hand."""
    if builder == "nix":
        nix.preload(found.lock_path, _workspace.SOURCE_ROOT, shelf, os.environ)
    if builder == "bazel":
        return bazel.cache_options(bazel.preload(found.lock, shelf))
    return []
