"""`pih seal`: SBOM, provenance and signatures for a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pih.cli import _bundle, _output, _path, _terminal, _workspace
from pih.seal import attach
from pih.trust import keys


@click.command(epilog="Example: pih seal dist/smollm2 -o dist/sealed --key team.pem")
@click.argument("bundle")
@click.option(
    "-o",
    "--output",
    type=_output.Place(),
    metavar="DIR",
    required=True,
    help="Where to write the layout.",
)
@click.option(
    "--key",
    "key_paths",
    type=_path.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Sign with this private key; may be given again.",
)
@_workspace.json_option
def command(bundle: str, output: Path, key_paths: tuple[Path, ...], as_json: bool) -> None:
    """Attach SBOM, provenance and signatures to a bundle, in a copy of it.

    BUNDLE, the folder of an image layout or an archive of one, is checked whole before. The image and its digest stay
    as they are. A bundle that is sealed already keeps its documents and gets the further signatures.
    """
    privates = [keys.load_private(path) for path in key_paths]
    with _bundle.layout(bundle) as layout:
        found = attach.seal(layout, output, privates)
    if as_json:
        facts = {
            "digest": found.image.layout.digest,
            "layout": str(output),
            "documents": sorted(found.documents),
            "signers": list(found.signers),
        }
        click.echo(json.dumps(facts, indent=2))
        return
    signed = ", ".join(found.signers) or "by nobody yet: pih seal --key FILE"
    _terminal.say([f"image    {found.image.layout.digest}", f"layout   {output}", f"signed   {signed}"])
