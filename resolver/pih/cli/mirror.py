"""`pih mirror`: what building some profiles needs, carried to a host without a network."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

import click

from pih import lock as locks
from pih.build import fetch
from pih.build.progress import renderer
from pih.carry import incoming, mirror, requirements
from pih.carry.mirror import Locked
from pih.cli import _output, _path, _terminal, _workspace
from pih_runtime.errors import UsageError

_PATH = _path.Path(path_type=Path)


@click.group()
def command() -> None:
    """Carry all that building needs to a host without a network.

    \b
    Example:
      pih mirror export --profile profiles/smollm2-cpu.toml -o mirror.tar
      pih mirror import mirror.tar && pih build --offline --profile profiles/smollm2-cpu.toml
    """


@command.command("export", epilog="Example: pih mirror export --profile profiles/smollm2-cpu.toml -o mirror.tar")
@click.option("--profile", "profiles", type=_PATH, multiple=True, metavar="FILE", help="A profile; may be given again.")
@click.option("--lock", "lock_paths", type=_PATH, multiple=True, metavar="FILE", help="A lock; may be given again.")
@click.option(
    "-o",
    "--output",
    type=_output.Place(),
    required=True,
    metavar="PATH",
    help="A folder, or a file that ends in .tar.",
)
@click.option("--weights", is_flag=True, help="Also the checkpoints of weights that are delivered separately.")
@click.option(
    "--python", "pythons", multiple=True, metavar="X.Y", help="Wheels of pih for this Python; default: this one."
)
@click.option("--no-wheels", is_flag=True, help="Leave out the Python packages that pih itself needs.")
@_workspace.offline_option
@_workspace.json_option
def export(
    profiles: tuple[Path, ...],
    lock_paths: tuple[Path, ...],
    output: Path,
    weights: bool,
    pythons: tuple[str, ...],
    no_wheels: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Write every artifact and toolchain of some locks, and the Python packages of pih itself.

    What the store has not is fetched. With --offline nothing is, and the Python packages are left out.
    """
    if not profiles and not lock_paths:
        raise UsageError("nothing to carry", fix="name a --profile or a --lock")
    for version in pythons:
        if not re.fullmatch(r"3\.[0-9]{1,2}", version):
            raise UsageError(f"{version!r} is no version of Python", where="--python", fix="such as 3.12")
    shelf, root = _workspace.store(), _workspace.SOURCE_ROOT
    with renderer() as listener, tempfile.TemporaryDirectory(prefix="pih-") as work:
        found = [Locked(locks.read(path), path) for path in lock_paths]
        for path in profiles:
            deployment = _workspace.deployment(path, offline=offline, listener=listener)
            found.append(Locked(deployment.lock, deployment.lock_path))
        wanted = []
        targets = (_workspace.IMAGE, _workspace.WEIGHTS) if weights else (_workspace.IMAGE,)
        for item in found:
            own = mirror.needed(item, targets)
            folder = item.path.parent
            fetch.fetch(own, shelf, lock_folder=folder, environment=os.environ, offline=offline, listener=listener)
            wanted += own
        python = requirements.versions(pythons)
        wheels = [] if no_wheels or offline else requirements.fetch(root, Path(work), python, os.environ)
        listing = mirror.listed(found, wanted, wheels, python)
        mirror.write(listing, shelf, wheels, output, listener)
    if as_json:
        rows = {"output": str(output), "size": listing.size, "artifacts": len(listing.artifacts)}
        rows |= {"wheels": len(listing.wheels), "python": list(listing.python), "left_out": list(listing.left_out)}
        click.echo(json.dumps(rows, indent=2))
        return
    first = f"{len(listing.artifacts)} artifacts, {len(wheels)} wheels, {listing.size / 1e6:.1f} MB: {output}"
    _terminal.say([first, *(f"not carried: {words}" for words in listing.left_out)])


@command.command("import", epilog="Example: pih mirror import /media/stick/mirror.tar")
@click.argument("path", type=_path.Path(path_type=Path, exists=True))
@_workspace.json_option
def import_(path: Path, as_json: bool) -> None:
    """Check every file of a mirror, a folder or an archive, and put its artifacts into the store."""
    with renderer() as listener:
        found = incoming.bring(path, _workspace.store(), listener)
    if as_json:
        profiles = [{"profile": item.profile, "sha256": item.sha256} for item in found.listing.locks]
        rows = {"artifacts": len(found.listing.artifacts), "added": list(found.added), "locks": profiles}
        click.echo(json.dumps({**rows, "left_out": list(found.listing.left_out)}, indent=2))
        return
    first = f"{len(found.listing.artifacts)} artifacts are whole, {len(found.added)} of them are new in the store"
    locked = (f"{item.profile}, sha256 {item.sha256}" for item in found.listing.locks)
    _terminal.say([first, *(f"build    pih build --offline with the lock of {words}" for words in locked)])
