"""`pih verify`: every byte of a bundle, and who vouches for it."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import click

from pih.build.progress import renderer
from pih.bundle import archive, stored
from pih.cli import _bundle, _path, _terminal, _workspace
from pih.inspect.opened import root_of
from pih.seal import intact, unpacked, verify
from pih.seal import policy as policies
from pih.seal.agreement import LIST
from pih.seal.verify import Verified
from pih_runtime.errors import UsageError

_PATH = _path.Path(path_type=Path)


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
@click.option(
    "--seal",
    "seal_path",
    type=_path.Path(path_type=Path, exists=True),
    metavar="LAYOUT",
    help="The sealed layout, or an archive of it, that an image in a store or an installed copy came from.",
)
@_workspace.json_option
def command(
    bundle: str, key_paths: tuple[Path, ...], policy_path: Path | None, seal_path: Path | None, as_json: bool
) -> None:
    """Check every byte of a bundle, and who vouches for it. Exit 8 where something is wrong, saying what.

    BUNDLE is the folder of an image layout, an archive of one, the root that it was unpacked to or installed in, or an
    image in an engine's store: podman:NAME, docker:NAME. Its layers, files, lock, SBOM and provenance must go together.
    Without --key or --policy that is all: whoever can change a bundle can make everything in it fit.

    Signatures travel with the layout: engines' stores and installed copies keep none. --seal names the layout whose
    signed manifest has this image's configuration, and so all of its layers.

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
    found = _read(bundle)
    if seal_path:
        found = _with_seal_of(seal_path, found)
    if wanted:
        found = verify.vouched(found, wanted, dt.datetime.now(dt.UTC))
    if as_json:
        click.echo(json.dumps(_as_json(found), indent=2))
    else:
        _terminal.say(_words(found))


def _read(bundle: str) -> Verified:
    image = stored.named(bundle)
    if image is not None:
        with renderer() as listener, stored.copied(image, _workspace.store(), os.environ, listener) as copy:
            return verify.kept(intact.of_layout(copy), bundle)
    root = root_of(Path(bundle))
    if root is not None:
        return verify.kept(unpacked.read(root), bundle)
    with _bundle.layout(bundle) as layout:
        return verify.whole(layout)


def _with_seal_of(seal: Path, found: Verified) -> Verified:
    if found.image.layout.digest:
        raise UsageError("the bundle is a layout, with a seal of its own", where=str(seal), fix="leave --seal out")
    with archive.outlined(seal) as layout:
        return verify.under(found, layout)


def _words(found: Verified) -> list[str]:
    image = found.image
    size = sum(file.size for file in image.files)
    lines = [
        f"image     {image.layout.digest or 'not known: this form of the bundle keeps no manifest'}",
        f"config    {image.layout.config_digest}",
        f"intact    {len(image.files)} files, {size / 1e6:.2f} MB, {len(image.layout.layers)} layers",
        f"          {len(image.files) - 1} are listed in {LIST}, which is one itself",
    ]
    if not image.layout.digest:
        lines.append("sealed    not known: signatures travel with the layout (--seal LAYOUT names it)")
    elif not found.documents:
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
        "config": image.layout.config_digest,
        "name": image.contents.name,
        "lock": image.contents.lock,
        "files": len(image.files),
        "documents": sorted(found.documents),
        "signers": list(found.signers),
        "vouched": [{"name": key.name, "fingerprint": key.fingerprint} for key in found.vouched],
    }
