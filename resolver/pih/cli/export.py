"""`pih export`: one file that installs a bundle on a host that has nothing but a shell."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click

from pih.build.progress import renderer
from pih.carry import export, header, parts
from pih.cli import _bundle, _output, _path, _terminal, _workspace
from pih.seal import verify
from pih.seal.verify import Verified
from pih_runtime.errors import SealError, UsageError


@click.command(epilog="Example: pih export dist/smollm2 -o smollm2.pih && sh smollm2.pih install --prefix /opt/pih")
@click.argument("bundle")
@click.option(
    "-o",
    "--output",
    type=_output.Place(dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option(
    "--weights",
    type=_path.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Carry these packed weights too, where the profile delivers them separately (see `pih weights pack`).",
)
@click.option("--split", metavar="SIZE", help="Write parts of at most this size, such as 4GB (2MB or more).")
@_workspace.json_option
def command(bundle: str, output: Path, weights: Path | None, split: str | None, as_json: bool) -> None:
    """Write BUNDLE as a file that verifies, installs and starts itself with `sh FILE`.

    BUNDLE is the folder of an image layout or an archive of one. It is checked before as `pih verify` checks it, and so
    is who may have signed it: no statement may have more than 16 signatures. FILE must not be there yet.
    """
    limit = _bytes(split)
    parts.check_place(output)
    with renderer() as listener, _bundle.layout(bundle) as layout:
        verified = verify.whole(layout)
        _check_signatures(verified)
        found = export.export(verified.image.layout, output, weights=weights, split=limit, listener=listener)
    if as_json:
        rows = {"files": [str(path) for path in found.files], "size": found.size, "digest": found.image}
        click.echo(json.dumps({"name": found.name, **rows, "header": f"sha256:{found.header}"}, indent=2))
        return
    files = [f"file     {path}  {path.stat().st_size / 1e6:.1f} MB" for path in found.files]
    last = f"install  sh {shlex.quote(found.files[0].name)} install --prefix /opt/pih"
    _terminal.say([f"image    {found.image}", *files, last])


def _check_signatures(found: Verified) -> None:
    """A host tries each of them: thousands would keep it busy for hours."""
    for kind, envelope in found.envelopes.items():
        if (count := len(envelope.signatures)) > header.SIGNATURES:
            raise SealError(
                f"{kind} has {count} signatures, and a host tries {header.SIGNATURES}",
                where=str(found.image.layout.path),
                fix="seal the bundle as it was built, with the keys that matter",
            )


def _bytes(text: str | None) -> int:
    """Of a size such as 4GB or 650MB; 0 for none. Raises UsageError for one that parts cannot have."""
    if text is None:
        return 0
    match = re.fullmatch(r"([1-9][0-9]{0,5}) ?(MB|GB)", text)
    size = int(match[1]) * {"MB": 10**6, "GB": 10**9}[match[2]] if match else 0
    if size < export.LEAST:
        raise UsageError(f"{text!r} is no size of parts", where="--split", fix="2MB or more, such as 650MB or 4GB")
    return size
