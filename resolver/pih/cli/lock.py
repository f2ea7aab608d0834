"""`pih lock`: resolve a profile into its lock, changing no more than must change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import click

from pih import catalog, pins, profile
from pih import lock as locks
from pih.build import pin
from pih.build.progress import renderer
from pih.cli import _workspace
from pih.lock import Lock


@click.command(epilog="Example: pih lock --profile profiles/smollm2-cpu.toml --upgrade base")
@_workspace.profile_option
@click.option(
    "--upgrade",
    metavar="[NAME]",
    flag_value="",
    is_flag=False,
    default=None,
    help="Move artifacts to what your registries offer: one by its name, 'base' (the .debs), or, without a name, all.",
)
@_workspace.offline_option
@_workspace.json_option
def command(profile_path: Path, upgrade: str | None, offline: bool, as_json: bool) -> None:
    """Resolve a profile into its lock; what is locked and still fits stays as it is."""
    intent = profile.load(profile_path)
    known = catalog.load(_workspace.SOURCE_ROOT)
    path = _workspace.lock_path(intent)
    before = locks.read(path) if path.exists() else None
    with renderer() as listener:
        start = before
        if upgrade is not None:
            start = before or _workspace.resolve(intent, known, None, offline=offline, listener=listener)
            start = _upgraded(start, upgrade)
        after = _workspace.resolve(intent, known, start, offline=offline, listener=listener)
    if after != before:
        locks.write(after, path)
    moves = _moves(before, after)
    if as_json:
        click.echo(json.dumps({"lock": str(path), "changed": after != before, "moves": moves}, indent=2))
        return
    for name, old, new in moves:
        click.echo(f"{name}: {old or 'new'} → {new or 'gone'}")
    click.echo(f"{path}: {'written' if after != before else 'unchanged'}")


def _upgraded(found: Lock, what: str) -> Lock:
    """The lock with the named artifacts pinned anew, as the start of a resolution."""
    held = pins.Pins(pins.SCHEMA, found.build.seed, found.artifacts)
    fresh, _ = pins.upgrade(held, pins.chosen(held, what), pin.newest(_workspace.store(), os.environ))
    return attrs.evolve(found, artifacts=fresh.artifacts)


def _moves(before: Lock | None, after: Lock) -> list[tuple[str, str, str]]:
    """(name, version before, version after) of each plugin and artifact that is not what it was."""
    old, new = _versions(before) if before else {}, _versions(after)
    names = sorted(old.keys() | new.keys())
    changed = [name for name in names if old.get(name) != new.get(name)]
    return [(name, old.get(name, ("", ""))[0], new.get(name, ("", ""))[0]) for name in changed]


def _versions(found: Lock) -> dict[str, tuple[str, str]]:
    plugins = {plugin.id: (plugin.version, "") for plugin in found.plugins}
    return plugins | {artifact.name: (artifact.version, artifact.sha256) for artifact in found.artifacts}
