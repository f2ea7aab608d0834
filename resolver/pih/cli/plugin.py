"""`pih plugin`: write a plugin of one's own, and try whether a plugin keeps its contract."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import attrs
import click

from pih.cli import _output, _path, _workspace
from pih.conformance import new as skeletons
from pih.conformance import suite
from pih_runtime.errors import ResolutionError


@click.group("plugin")
def command() -> None:
    """Write plugins, and check that they keep their contract.

    \b
    Example:
      pih plugin new --kind backend my-npu
      pih plugin check my-npu
    """


@command.command("new")
@click.argument("name")
@click.option("--kind", type=click.Choice(skeletons.KINDS), required=True, help="What it is to provide.")
@click.option(
    "--output", type=_output.Place(file_okay=False), metavar="FOLDER", help="Where to write it; by default ./NAME."
)
def new(name: str, kind: str, output: Path | None) -> None:
    """Write a plugin that works, to start from.

    \b
    Example:
      pih plugin new --kind backend my-npu
    """
    folder = output or _output.free(Path(name))
    skeletons.write(kind, name, folder, _workspace.SOURCE_ROOT)
    click.echo(f"wrote {folder}: {kind}/{name}, which passes: pih plugin check {shlex.quote(str(folder))}")


@command.command("check")
@click.argument("path", type=_path.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--python",
    type=_path.Path(dir_okay=False),
    default=sys.executable,
    metavar="FILE",
    help="The interpreter that has the plugin's wheels; by default PIH's own.",
)
@_workspace.json_option
@_workspace.offline_option
def check(path: Path, python: str, as_json: bool, offline: bool) -> None:
    """Run the conformance suite on the plugin in folder PATH.

    Exit code 4 where a check fails. A check that cannot be made here is skipped, with its reason.

    \b
    Example:
      pih plugin check my-npu
      pih plugin check plugins/backend/torch --python .venv-torch/bin/python
    """
    from pih.build import fetch

    bring = fetch.one(
        _workspace.store(),
        lock_folder=Path.cwd(),
        environment=os.environ,
        offline=offline,
        listener=lambda _event: None,
    )
    found = []
    for item in suite.check(path, _workspace.SOURCE_ROOT, bring, python):
        found.append(item)
        if not as_json:
            detail = "".join(f"\n    {line}" for line in item.detail.splitlines())
            click.echo(f"{item.outcome:8}{item.name}{detail}")
    if as_json:
        click.echo(json.dumps([attrs.asdict(item) for item in found], indent=2))
    failed = [item.name for item in found if item.outcome == "failed"]
    if failed:
        raise ResolutionError(
            f"{len(failed)} of {len(found)} checks failed: {', '.join(failed[:5])}{', …' if failed[5:] else ''}",
            where=str(path),
            fix="see docs/howto/write-a-plugin.md for what each check asks",
        )
    if not as_json:
        skipped = sum(item.outcome == "skipped" for item in found)
        click.echo(f"{len(found) - skipped} checks passed, {skipped} skipped")
