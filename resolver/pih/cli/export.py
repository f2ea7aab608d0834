"""`pih export`: one file that installs a bundle on a host that has nothing but a shell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from pih.build.progress import renderer
from pih.bundle import archive
from pih.bundle import layout as layouts
from pih.carry import export
from pih.cli import _bundle, _terminal, _workspace
from pih_runtime.errors import UsageError


@click.command(epilog="Example: pih export dist/smollm2 -o smollm2.pih && sh smollm2.pih install --prefix /opt/pih")
@click.argument("bundle", type=click.Path(path_type=Path, exists=True))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE")
@click.option(
    "--weights",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Carry these packed weights too, where the profile delivers them separately (see `pih weights pack`).",
)
@click.option("--split", metavar="SIZE", default="", help="Write parts of at most this size, such as 4GB.")
@_workspace.json_option
def command(bundle: Path, output: Path, weights: Path | None, split: str, as_json: bool) -> None:
    """Write BUNDLE as a file that verifies, installs and starts itself with `sh FILE`.

    BUNDLE is the folder of an image layout or an archive of one. All of it is checked before.
    """
    parts = _bytes(split)
    with renderer() as listener, _workspace.own(_bundle.there(str(bundle))), archive.unpacked(bundle) as layout:
        found = export.export(layouts.read(layout), output, weights=weights, split=parts, listener=listener)
    if as_json:
        rows = {"files": [str(path) for path in found.files], "size": found.size, "digest": found.image}
        click.echo(json.dumps({"name": found.name, **rows, "header": f"sha256:{found.header}"}, indent=2))
        return
    files = [f"file     {path}  {path.stat().st_size / 1e6:.1f} MB" for path in found.files]
    last = f"install  sh {found.files[0].name} install --prefix /opt/pih"
    _terminal.say([f"image    {found.image}", *files, last])


def _bytes(text: str) -> int:
    """Of a size such as 4GB or 650MB; 0 for none."""
    if not text:
        return 0
    match = re.fullmatch(r"([1-9][0-9]{0,5}) ?(MB|GB)", text)
    if match is None:
        raise UsageError(f"{text!r} is no size", where="--split", fix="such as 4GB or 650MB")
    return int(match[1]) * {"MB": 10**6, "GB": 10**9}[match[2]]
