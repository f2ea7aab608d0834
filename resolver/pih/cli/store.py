"""`pih store`: look at, fill and thin out the store."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import attrs
import click

from pih.build import prune as pruning
from pih.cli import _path, _workspace
from pih.columns import aligned

_DAY = 24 * 60 * 60


@click.group()
def command() -> None:
    """Look at, fill and thin out the content-addressed store (PIH_STORE, else your cache folder).

    \b
    Example: pih store add model.safetensors
    """


@command.command("add", epilog="Example: pih store add model.safetensors")
@click.argument("files", type=_path.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True)
@_workspace.json_option
def add(files: tuple[Path, ...], as_json: bool) -> None:
    """Put FILES into the store under their digests: any lock that wants those bytes then finds them."""
    shelf = _workspace.store()
    added = [{"file": str(path), "sha256": shelf.add_file(path)} for path in files]
    if as_json:
        click.echo(json.dumps(added, indent=2))
        return
    for row in added:
        click.echo(f"{row['sha256']}  {row['file']}")


@command.command("path", epilog="Example: pih store path")
def path() -> None:
    """Print where the store is."""
    click.echo(_workspace.store().root)


@command.command("prune", epilog="Example: pih store prune --days 7 --dry-run")
@click.option("--days", type=click.IntRange(1), default=30, show_default=True, help="What was used since then stays.")
@click.option("--dry-run", is_flag=True, help="Only list what would go.")
@_workspace.json_option
def prune(days: int, dry_run: bool, as_json: bool) -> None:
    """Take away what was made and then not used for a while.

    That is outputs of steps (finished images among them), unpacked images, and interpreters. The next build makes again
    what it needs. Artifacts stay, and what a worker runs from.
    """
    shelf = _workspace.store()
    found = pruning.unused(shelf, time.time() - days * _DAY)
    gone = [entry for entry in found if dry_run or pruning.remove(shelf, entry)]
    if as_json:
        click.echo(json.dumps([attrs.asdict(entry) | {"used": _day(entry)} for entry in gone], indent=2))
        return
    rows = [("last used", "MB", "what"), *((_day(entry), _mb(entry.nbytes), _what(entry)) for entry in gone)]
    total = ("", _mb(sum(entry.nbytes for entry in gone)), f"{'would go' if dry_run else 'gone'} from {shelf.root}")
    click.echo("\n".join(aligned([*rows, total], numbers=frozenset({1}))))


def _day(entry: pruning.Entry) -> str:
    return datetime.fromtimestamp(entry.used, UTC).date().isoformat()


def _what(entry: pruning.Entry) -> str:
    return f"{entry.kind}/{entry.key[:12]}  {entry.name}"


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f}"
