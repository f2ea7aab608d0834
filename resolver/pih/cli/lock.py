"""`pih lock`: resolve a profile into its lock, changing no more than must change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from pih import lock as locks
from pih import pins, profile
from pih.build import pin
from pih.build.progress import renderer
from pih.cli import _terminal, _workspace
from pih.columns import aligned
from pih.lock import Lock
from pih.structure import nearest
from pih_runtime.errors import LockError, UsageError

if TYPE_CHECKING:
    from pih.inspect.moves import Move


@click.command(epilog="Example: pih lock --profile profiles/smollm2-cpu.toml --upgrade base")
@_workspace.profile_option
@click.option(
    "--upgrade",
    metavar="[NAME]",
    flag_value=pins.ALL,
    is_flag=False,
    default=None,
    help="Move a plugin to the catalog's newest that serves, or artifacts to what your registries offer: one by its "
    "name, 'base' (the .debs), or, without a name, all.",
)
@_workspace.offline_option
@_workspace.json_option
def command(profile_path: Path, upgrade: str | None, offline: bool, as_json: bool) -> None:
    """Resolve a profile into its lock; what is locked and still fits stays as it is.

    Prints each decision that moved, from what to what, and why.
    """
    intent = profile.load(profile_path)
    offers = _workspace.offers_of(intent)
    path = _workspace.lock_path(intent)
    before = _before(path)
    with renderer() as listener:
        start, asked = before, frozenset[str]()
        if upgrade is not None:
            start = before or _workspace.resolve(intent, offers, None, offline=offline, listener=listener)
            asked = _asked(start, upgrade)
            start = _upgraded(start, asked)
        after = _workspace.resolve(intent, offers, start, offline=offline, listener=listener)
        gone = _workspace.withdrawn(after, offers, intent, listener)
    found: list[Move] = []
    if after != before:
        from pih.inspect import moves

        locks.write(after, path)
        found = list(moves.moves(before, after, lambda *key: intent.reason(_workspace.SOURCE_ROOT, *key), asked))
    if as_json:
        rows = [attrs.asdict(move) for move in found]
        data = {"lock": str(path), "changed": after != before, "moves": rows, "withdrawn": gone}
        click.echo(json.dumps(data, indent=2))
        return
    if found:
        head = ("what", "before", "after", "why")
        _terminal.say(aligned([head, *(attrs.astuple(move) for move in found)]))
    click.echo(f"{path}: {'written' if after != before else 'unchanged'}")


def _asked(found: Lock, what: str) -> frozenset[str]:
    """The plugins and artifacts that `--upgrade WHAT` may move."""
    ids = frozenset(plugin.id for plugin in found.plugins)
    if what in ids:
        return frozenset([what])
    try:
        artifacts = frozenset(artifact.name for artifact in pins.chosen(_held(found), what))
    except UsageError as problem:
        near = nearest(what, [*ids, *(artifact.name for artifact in found.artifacts)])
        meant = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"no plugin or artifact is called {what!r}", fix=f"{meant}give base, or the name of one in the lock"
        ) from problem
    return artifacts | ids if what == pins.ALL else artifacts


def _before(path: Path) -> Lock | None:
    """The lock as it is; none where it cannot be used, which is said: its versions are then chosen anew."""
    if not path.exists():
        return None
    try:
        return locks.read(path)
    except LockError as problem:
        _terminal.say([f"{problem.where}: {problem.what}; every version is chosen anew"], err=True)
        return None


def _upgraded(found: Lock, asked: frozenset[str]) -> Lock:
    """The lock as the start of a resolution: without the plugins that may move, with the artifacts pinned anew."""
    moving = tuple(artifact for artifact in found.artifacts if artifact.name in asked)
    fresh, _ = pins.upgrade(_held(found), moving, pin.newest(_workspace.store(), os.environ))
    kept = tuple(plugin for plugin in found.plugins if plugin.id not in asked)
    return attrs.evolve(found, plugins=kept, artifacts=fresh.artifacts)


def _held(found: Lock) -> pins.Pins:
    return pins.Pins(pins.SCHEMA, found.build.seed, found.artifacts)
