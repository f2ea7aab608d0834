"""`pih inspect`: what is in a bundle, and why."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from pih.cli import _builders, _workspace
from pih.inspect.bundle import Contents, as_json, contents
from pih_runtime.errors import UsageError


@click.command(epilog="Example: pih inspect --profile profiles/smollm2-cpu.toml --json")
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The profile whose image to show; it is built unless it is in the store.",
)
@_workspace.offline_option
@click.option("--json", "json_wanted", is_flag=True, help="Print {identity, layers, files} as JSON.")
def command(bundle: Path | None, profile_path: Path | None, offline: bool, json_wanted: bool) -> None:
    """Show what is in a bundle: identity, layers, and every file with its digest, component and reason.

    BUNDLE is the folder of an OCI image layout; --profile takes the image of a profile instead.
    """
    if (bundle is None) == (profile_path is None):
        raise UsageError("give a BUNDLE or a --profile", fix="pih inspect --profile profiles/smollm2-cpu.toml")
    if bundle is None:
        assert profile_path is not None
        bundle = _builders.build_profile(profile_path, offline=offline)[1].output
    held = contents(bundle)
    click.echo(json.dumps(as_json(held), indent=2) if json_wanted else _text(held))


def _text(held: Contents) -> str:
    lines = [f"name    {held.name}", f"digest  {held.digest}", f"lock    {held.lock}", f"image   {held.reference}", ""]
    for layer in held.layers:
        sizes = f"{layer.size / 1e6:8.2f} MB unpacked {layer.compressed / 1e6:8.2f} MB shipped"
        lines.append(f"{layer.name:10} {sizes}  {layer.digest}")
    lines.append("")
    lines += [f"{file.size:>10}  {file.path:60} {file.component}: {file.reason}" for file in held.files]
    return os.linesep.join(lines)
