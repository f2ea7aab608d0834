"""`pih key`: the keys that plugins, catalogs and bundles are signed with."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pih.cli import _output, _path, _workspace
from pih.trust import keys

_FILE = click.argument("file", type=_path.Path(path_type=Path))


@click.group()
def command() -> None:
    """Keys to sign with: ed25519, in PEM files, as openssl reads and writes them.

    \b
    Example:
      pih key generate team.pem
      pih seal dist/smollm2 -o dist/sealed --key team.pem
    """


@command.command("generate", epilog="Example: pih key generate ~/.config/pih/team.pem")
@click.argument("file", type=_output.Place(dir_okay=False))
@_workspace.json_option
def generate(file: Path, as_json: bool) -> None:
    """Make a key: FILE, which you keep to yourself, and FILE.pub, which others verify with. Prints its fingerprint."""
    public = keys.public_of(keys.generate(file))
    if as_json:
        facts = {"fingerprint": keys.fingerprint(public), "private": str(file), "public": str(keys.public_path(file))}
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo(keys.fingerprint(public))


@command.command("show", epilog="Example: pih key show team.pem.pub")
@_FILE
@_workspace.json_option
def show(file: Path, as_json: bool) -> None:
    """Show the fingerprint of a key, private or public, and the line that a policy holds of it."""
    public = keys.load_either(file)
    name, line = keys.fingerprint(public), keys.pem_body(public)
    if as_json:
        click.echo(json.dumps({"fingerprint": name, "public": line}, indent=2))
    else:
        click.echo(f'{name}\npublic = "{line}"')
