"""`pih build`: from a profile and its lock to the sealed image, and what became of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from pih.cli import _workspace
from pih.inspect.bundle import Component, Contents, components, contents, known
from pih_runtime.errors import BuildError


@click.command(epilog="Example: pih build --profile profiles/smollm2-cpu.toml --output dist/smollm2")
@_workspace.profile_option
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Also copy the image layout there.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Steps at the same time; default: one for each CPU.")
@_workspace.offline_option
@_workspace.json_option
def command(profile_path: Path, output: Path | None, jobs: int | None, offline: bool, as_json: bool) -> None:
    """Build the sealed image of a profile.

    Takes the committed lock as it is; resolves only where there is none yet.
    """
    found, result = _workspace.build_profile(profile_path, offline=offline, jobs=jobs or 0)
    layout = _copied(result.output, output) if output else result.output
    held = contents(layout)
    ran = [step.id for step in result.steps if not step.cached]
    if as_json:
        data = {"profile": found.profile.name, "digest": held.digest, "layout": str(layout), "steps_run": ran}
        click.echo(json.dumps(data, indent=2))
        return
    click.echo(_table(components(held, known(found.lock)), held))
    click.echo(f"image    {held.digest}  ({len(ran)} of {len(result.steps)} steps ran)")
    click.echo(f"layout   {layout}")
    click.echo(f"load     tar -C {layout} -cf - . | podman load    (or docker load)")
    click.echo(f"run      podman run --rm -p {found.lock.service.port}:{found.lock.service.port} {held.reference}")


def _copied(image: Path, output: Path) -> Path:
    """A layout of the user's own, beside and renamed; hard links would let an edit reach the store."""
    if output.exists() and not (output / "oci-layout").is_file():
        raise BuildError("is there already, and is no image layout", where=str(output), fix="name another folder")
    beside = output.with_name(f".{output.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(image, beside)
    if output.exists():
        shutil.rmtree(output)
    beside.rename(output)
    return output


def _table(rows: list[Component], held: Contents) -> str:
    """component, version, unpacked, compressed, reason; sizes in MB, the largest first."""
    head = ("component", "version", "unpacked", "compressed", "reason")
    cells = [
        (row.name, row.version, f"{row.size / 1e6:.2f}", f"{row.compressed / 1e6:.2f}", row.reason) for row in rows
    ]
    total = ("total", "", f"{held.size / 1e6:.2f}", f"{held.compressed / 1e6:.2f}", "MB")
    widths = [max(len(line[column]) for line in (head, *cells, total)) for column in range(4)]

    def line(cell: tuple[str, ...]) -> str:
        name, version, size, packed, reason = cell
        left = f"{name:{widths[0]}}  {version:{widths[1]}}"
        return f"{left}  {size:>{widths[2]}}  {packed:>{widths[3]}}  {_short(reason)}"

    return "\n".join(map(line, (head, *cells, total)))


def _short(reason: str) -> str:
    """The end of a chain says what needs it; the whole chain is in `pih inspect`."""
    last = reason.rsplit("→", 1)[-1].strip()
    return last if len(last) <= 72 else last[:71] + "…"
