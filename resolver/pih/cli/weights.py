"""`pih weights pack`: the weights of a profile that delivers them separately, as its kernels read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from pih.build.store import measure
from pih.cli import _builders, _workspace


@click.group()
def command() -> None:
    """Weights that are delivered apart from the image.

    \b
    Example: pih weights pack --profile profiles/qwen3-cpu.toml --output qwen3.safetensors
    """


@command.command(
    "pack", epilog="Example: pih weights pack --profile profiles/qwen3-cpu.toml --output qwen3.safetensors"
)
@_workspace.profile_option
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also copy the packed file there."
)
@_workspace.offline_option
@_workspace.json_option
def pack(profile_path: Path, output: Path | None, offline: bool, as_json: bool) -> None:
    """Pack a profile's checkpoint into one safetensors file in the layout that the locked kernels read.

    The checkpoint is fetched unless the store has it: `pih store add model.safetensors` brings one that is at hand.
    """
    _, result = _builders.build_profile(profile_path, offline=offline, target=_workspace.WEIGHTS)
    path = result.output
    if output is not None:
        beside = output.with_name(f".{output.name}.part")
        shutil.copyfile(path, beside)
        beside.replace(output)
        path = output
    digest, size = measure(path)
    if as_json:
        click.echo(json.dumps({"path": str(path), "sha256": digest, "size": size}, indent=2))
        return
    click.echo(f"weights  {path}\nsha256   {digest}\nsize     {size / 1e6:.1f} MB")
