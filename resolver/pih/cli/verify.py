"""`pih verify`: every byte of a bundle, and who vouches for it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import click

from pih.cli import _bundle, _workspace
from pih.seal import policy as policies
from pih.seal import verify
from pih.seal.verify import Verified
from pih_runtime.errors import UsageError

_PATH = click.Path(path_type=Path)


@click.command(epilog="Example: pih verify dist/sealed --key team.pem.pub")
@click.argument("bundle")
@click.option(
    "--key",
    "key_paths",
    type=_PATH,
    metavar="FILE",
    multiple=True,
    help="A public key that must have signed it; may be given again.",
)
@click.option(
    "--policy", "policy_path", type=_PATH, metavar="FILE", help="Which keys, and how many of them, must sign."
)
@_workspace.json_option
def command(bundle: str, key_paths: tuple[Path, ...], policy_path: Path | None, as_json: bool) -> None:
    """Check every byte of a bundle, and who vouches for it. Exit 8 where something is wrong, saying what.

    BUNDLE is the folder of an image layout or an archive of one. Its layers, files, lock, SBOM and provenance must go
    together. Without --key or --policy that is all: whoever can change a bundle can make everything in it fit.

    \b
    A policy (TOML):
      threshold = 1
      [[key]]
      name = "team"
      public = "…"            # the line that `pih key show FILE` prints
      expires = 2027-01-01    # may be left out
    """
    if key_paths and policy_path:
        raise UsageError("--key and --policy do not go together", fix="give one of them")
    wanted = policies.load(policy_path) if policy_path else policies.of_keys(key_paths) if key_paths else None
    with _bundle.layout(bundle) as layout:
        found = verify.whole(layout)
    if wanted:
        found = verify.vouched(found, wanted, dt.datetime.now(dt.UTC))
    click.echo(json.dumps(_as_json(found), indent=2) if as_json else "\n".join(_words(found)))


def _words(found: Verified) -> list[str]:
    image = found.image
    size = sum(file.size for file in image.files)
    lines = [
        f"image     {image.layout.digest}",
        f"intact    {len(image.files)} files, {size / 1e6:.2f} MB, {len(image.layout.layers)} layers",
    ]
    if not found.documents:
        lines.append("sealed    no: it has neither SBOM nor provenance")
    elif found.signers:
        lines.append(f"sealed    signed in the name of {', '.join(found.signers)}")
    else:
        lines.append("sealed    SBOM and provenance, unsigned")
    if found.vouched:
        return [*lines, f"vouched   by {', '.join(key.words for key in found.vouched)}"]
    return [*lines, "vouched   integrity only: nobody vouches for it (--key or --policy says whom you believe)"]


def _as_json(found: Verified) -> dict[str, object]:
    image = found.image
    return {
        "digest": image.layout.digest,
        "name": image.contents.name,
        "lock": image.contents.lock,
        "files": len(image.files),
        "documents": sorted(found.documents),
        "signers": list(found.signers),
        "vouched": [{"name": key.name, "fingerprint": key.fingerprint} for key in found.vouched],
    }
