"""`pih store`: look at and fill the artifact store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pih.cli import _path, _workspace


@click.group()
def command() -> None:
    """Look at and fill the content-addressed store (PIH_STORE, else your cache folder).

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
