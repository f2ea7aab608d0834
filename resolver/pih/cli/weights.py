"""`pih weights pack`: the weights of a profile that delivers them separately, as its kernels read them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import click

from pih import licences
from pih.build import made
from pih.build.placing import placed
from pih.build.progress import Listener, renderer
from pih.build.store import measure
from pih.bundle import modelpack
from pih.bundle.copy import copied
from pih.bundle.run import DIGESTS_FILE, WEIGHTS_FILE, digests_of
from pih.cli import _builders, _output, _workspace
from pih.lock import Lock
from pih.reading import json_of, read_at_most
from pih.spdx import NOASSERTION
from pih_runtime.digests import MOST, parse, root
from pih_runtime.errors import SealError, UsageError
from pih_steps.lower.safetensors import MAX_HEADER

_DESCRIBED = re.compile(r"[^ ]+ [^ ]+ \[[0-9, ]*\]")  # format, layout, shape


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
    "--output",
    type=_output.Place(dir_okay=False),
    metavar="FILE",
    help="Also copy the packed file there, and its table of digests beside it: FILE with the suffix .digests.",
)
@click.option(
    "--oci",
    "artifact",
    type=_output.Place(file_okay=False),
    metavar="DIR",
    help="Also write both there as a ModelPack artifact in an OCI layout, for a registry: skopeo copy oci:DIR docker://…",
)
@_workspace.offline_option
@_workspace.json_option
def pack(profile_path: Path, output: Path | None, artifact: Path | None, offline: bool, as_json: bool) -> None:
    """Pack a profile's checkpoint into one safetensors file in the layout that the locked kernels read.

    The checkpoint is fetched unless the store has it: `pih store add model.safetensors` brings one that is at hand.
    Prints the digest that the profile may pin, as weights.digest.
    """
    with renderer() as listener:
        found = _workspace.deployment(profile_path, offline=offline, listener=listener)
        weights, table = (
            _whole(found, step, offline=offline, listener=listener) for step in (_workspace.WEIGHTS, _workspace.DIGESTS)
        )
    pin = root(table.read_bytes())
    _check_pin(found.lock, pin, profile_path)
    if output is not None:
        weights = _copied(weights, output, _is_packed)
        table = _copied(table, digests_of(output), _is_table)
    manifest = _artifact(found.lock, weights, table, artifact) if artifact is not None else ""
    digest, size = measure(weights)
    pinned = bool(found.lock.weights.digest)
    if as_json:
        rows = {"path": str(weights), "sha256": digest, "size": size, "artifact": manifest}
        click.echo(json.dumps({**rows, "digests": str(table), "digest": pin, "pinned": pinned}, indent=2))
        return
    click.echo(f"weights  {weights}\nsha256   {digest}\nsize     {size / 1e6:.1f} MB")
    click.echo(f"digests  {table}\ndigest   {pin}")
    if artifact is not None:
        click.echo(f"artifact {artifact}  {manifest}")
    if found.lock.weights.delivery == "separate" and not pinned:
        click.echo(f"not pinned: to let the worker take no others, add to [weights] of {profile_path}:")
        click.echo(f'digest = "{pin}"')


def _whole(found: _workspace.Deployment, step: str, *, offline: bool, listener: Listener) -> Path:
    """A step's output, read before it is delivered: bits rot in a store. What is damaged there is made again."""

    def built() -> Path:
        return _builders.build(found, "embedded", step, offline=offline, jobs=0, listener=listener).output

    output = built()
    sound = made.intact(_workspace.store(), "steps", output.parent.name, name=step, listener=listener)
    return output if sound else built()


def _check_pin(lock: Lock, pin: str, profile_path: Path) -> None:
    if lock.weights.digest not in ("", pin):
        raise SealError(
            f"the packed weights have the digest {pin}, the profile pins {lock.weights.digest}",
            where=str(profile_path),
            fix="pack the checkpoint that was pinned; if these are the ones you mean, correct weights.digest: pih lock",
        )


def _artifact(lock: Lock, weights: Path, table: Path, output: Path) -> str:
    """Write the ModelPack artifact; the digest of its manifest."""
    known = licences.of_components(lock)["weights"]
    licence = "" if known == NOASSERTION else known
    files = [(PurePosixPath(place).name, path) for path, place in ((weights, WEIGHTS_FILE), (table, DIGESTS_FILE))]
    with _workspace.store().workspace() as work:
        written = modelpack.write(work / "layout", lock.profile.name, lock.pih, licence, *files)
        copied(work / "layout", output)
    return written.digest


def _copied(path: Path, output: Path, is_own: Callable[[Path], bool]) -> Path:
    """A copy at `output`. is_own: whether what is there is of this kind: raises UsageError for any other file."""

    def check(place: Path) -> None:
        if os.path.lexists(place) and not (place.is_file() and is_own(place)):
            what = "is there already, and is nothing that pih packed"
            raise UsageError(what, where=str(place), fix="name another file, or remove this one")

    with placed(output, check) as place:
        shutil.copyfile(path, place)
    return output


def _is_packed(path: Path) -> bool:
    """Whether each tensor is described as packing does it; a checkpoint's are not."""
    with path.open("rb") as reader:
        length = int.from_bytes(reader.read(8), "little")
        head = reader.read(length) if length < MAX_HEADER else b""
    try:
        described = json_of(head)["__metadata__"].values()
        return all(_DESCRIBED.fullmatch(text) for text in described)
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _is_table(path: Path) -> bool:
    try:
        parse(read_at_most(path, MOST))
    except ValueError:
        return False
    return True
