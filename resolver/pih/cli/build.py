"""`pih build`: from a profile and its lock to the sealed image, and what became of it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import attrs
import click

from pih.build.progress import renderer
from pih.build.store import default_root
from pih.bundle import engine, permissions
from pih.bundle import layout as layouts
from pih.bundle.shares import Shares, of_layout
from pih.cli import _builders, _output, _path, _table, _terminal, _worker, _workspace
from pih.inspect.bundle import Contents, components, contents, known
from pih.lock import Lock
from pih.resolve.memo import remembered
from pih_runtime.errors import BuildError, PihError, SealError, UsageError, described


@click.command(epilog="Example: pih build --profile profiles/smollm2-cpu.toml --output dist/smollm2")
@_workspace.profile_option
@click.option(
    "-o",
    "--output",
    type=_output.Place(),
    metavar="DIR",
    help="Also copy the layout there, every byte checked.",
)
@click.option(
    "--key",
    "key_paths",
    type=_path.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Seal the copy, signed with this private key, as `pih seal` does; may be given again.",
)
@click.option(
    "--builder",
    type=click.Choice(list(_builders.BUILDERS)),
    default=None,
    help="What runs the lock's steps; each gives the same bytes. Default: embedded.",
)
@click.option("--all-builders", is_flag=True, help="Build with every builder of this host and compare, byte by byte.")
@click.option("--check", is_flag=True, help="Run every step a second time and report those that give other bytes.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Steps at the same time; default: one for each CPU.")
@_workspace.offline_option
@_workspace.json_option
def command(
    profile_path: Path,
    output: Path | None,
    key_paths: tuple[Path, ...],
    builder: str | None,
    all_builders: bool,
    check: bool,
    jobs: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Build the sealed image of a profile.

    Takes the committed lock as it is; resolves only where there is none yet.
    """
    if key_paths and output is None:
        raise UsageError("--key seals a copy, and there is none", fix="name a folder for it: --output DIR")
    if all_builders or check:
        given = {"--all-builders": all_builders, "--check": check, "--builder": builder, "--output": output}
        names = [name for name, value in given.items() if value]
        if len(names) > 1:
            what = f"{names[0]} does not go together with {' and '.join(names[1:])}"
            raise UsageError(
                what, fix=f"leave out {names[0]}, or the rest; --check runs the steps with the embedded builder"
            )
        (_compare if all_builders else _check)(profile_path, offline=offline, jobs=jobs or 0, as_json=as_json)
        return
    copier = _copier(output, key_paths) if output else None
    builder = builder or "embedded"
    found, result = _builders.build_profile(profile_path, offline=offline, jobs=jobs or 0, builder=builder)
    with _workspace.own(result.output):
        held = contents(result.output)
        shares = _shares(result.output, held)
        if copier:
            copier(result.output)
    layout = output or result.output
    rows = components(held, known(found.lock))
    if as_json:
        data = {
            "profile": found.profile.name,
            "digest": held.digest,
            "layout": str(layout),
            "builder": builder,
            "steps_run": list(result.ran),
            "withdrawn": found.withdrawn,
            "components": [
                {"name": row.name, "version": row.version, "size": row.size, "compressed": shares.get(row.name, 0)}
                | {"reason": row.reason}
                for row in rows
            ],
        }
        click.echo(json.dumps(data, indent=2))
        return
    _terminal.say(_table.components(rows, held, shares).split("\n"))
    click.echo(f"image    {held.digest}  ({len(result.ran)} steps ran now)")
    click.echo(f"layout   {layout}")
    click.echo(f"load     tar -C {shlex.quote(str(layout))} -cf - . | podman load    (or docker load)")
    if found.lock.weights.delivery == "separate":
        click.echo(f"weights  pih weights pack --profile {shlex.quote(str(profile_path))} --output weights.safetensors")
    click.echo(f"run      {_worker.not_run_yet(found.lock) or run_line(found.lock, held.reference)}")


def _shares(layout: Path, held: Contents) -> dict[str, int]:
    """What each component takes of the image as it is shipped; remembered, since every compressed layer is read."""

    def read() -> Shares:
        by_path = {file.path: file.component for file in held.files}
        return of_layout(layouts.read(layout), {f"/{layouts.BUNDLE_FILE}": "pih", **by_path})

    memo = default_root(os.environ) / "lowered"
    code = ("resolver/pih/bundle/shares.py",)
    return remembered(memo, _workspace.SOURCE_ROOT, {"image": held.digest}, {}, code, read, Shares).of


def run_line(lock: Lock, reference: str) -> str:
    """How a container engine runs the image, with all that the lock says it needs of its host."""
    words = ["podman run --rm --read-only --cap-drop ALL", f"-p {lock.service.port}:{lock.service.port}"]
    words += engine.reach(permissions.asked_of(plugin.permissions for plugin in lock.plugins))
    if lock.weights.delivery == "separate":
        words.append("-v ./weights.safetensors:/pih/weights/weights.safetensors:ro")
        words.append("-v ./weights.digests:/pih/weights/weights.digests:ro")
    return " ".join([*words, reference])


def _compare(profile_path: Path, *, offline: bool, jobs: int, as_json: bool) -> None:
    """Exit 7 where two builders differ or there is but one, and as a builder itself would where that one fails."""
    with renderer() as listener:
        found = _workspace.deployment(profile_path, offline=offline, listener=listener)
        runs = _builders.compare(found, target=_workspace.IMAGE, offline=offline, jobs=jobs, listener=listener)
    if as_json:
        rows = [{**attrs.asdict(run), "failed": described(run.failed) if run.failed else ""} for run in runs]
        click.echo(json.dumps(rows, indent=2))
    else:
        for run in runs:
            click.echo(f"{run.builder:10} {_became(run)}")
    for run in runs:
        if run.difference:
            raise BuildError(
                f"{run.builder} gives other bytes: {run.difference.what}, first at byte {run.difference.offset}",
                where=run.difference.path,
                fix=_look(next(first for first in runs if first.layout), run, profile_path),
            )
    for run in runs:
        if run.failed:
            raise run.failed
    if len([run for run in runs if run.digest]) < 2:
        raise BuildError(
            "nothing was compared: this host has one builder", fix="install Bazel or Nix, as docs/howto/ describes"
        )


def _look(first: _builders.Run, other: _builders.Run, profile_path: Path) -> str:
    """How to find out why two images differ: bits may have rotted, or a step is not pure."""
    layouts = " and ".join(f"pih verify {shlex.quote(run.layout)}" for run in (first, other))
    check = f"pih build --check --profile {shlex.quote(str(profile_path))}"
    return f"{layouts} tell whether one of the images was damaged; if none was, {check} names the step that is not pure"


def _became(run: _builders.Run) -> str:
    if run.skipped:
        return f"SKIPPED: {run.skipped}"
    if run.failed:
        words = run.failed.what if isinstance(run.failed, PihError) else described(run.failed)
        return f"FAILED: {_first_words(words)}"
    verdict = "  DIFFERS" if run.difference else ""
    return f"{run.digest}  {run.seconds:7.1f} s, {run.ran} steps ran{verdict}"


def _first_words(what: str) -> str:
    """One line: `TOOL failed:` with what the tool said, its line of an error before others."""
    head, *said = [line.strip() for line in what.splitlines()]
    if not (head.endswith(":") and said):
        return head
    return f"{head} {next((line for line in said if line.lower().startswith('error:')), said[0])}"


def _check(profile_path: Path, *, offline: bool, jobs: int, as_json: bool) -> None:
    """Exit 7 where a step gives other bytes the second time."""
    with renderer() as listener:
        found = _workspace.deployment(profile_path, offline=offline, listener=listener)
        steps, findings = _builders.twice(found, _workspace.IMAGE, offline=offline, jobs=jobs, listener=listener)
    if as_json:
        click.echo(json.dumps([attrs.asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            place, why = finding.difference, " (after another that differs)" if finding.inherited else ""
            click.echo(f"{finding.step}: {place.path or 'output'} differs at byte {place.offset}, {place.what}{why}")
        click.echo(f"{steps - len(findings)} of {steps} steps gave the same bytes again")
    if findings:
        own = ", ".join(finding.step for finding in findings if not finding.inherited)
        raise BuildError(
            f"not the same bytes the second time: {own}",
            fix="make the step a function of its declared inputs: no clock, no address, no order of a folder or a set",
        )


def _read_whole(made: Path, source: Path) -> None:
    """What is delivered is what `pih verify` finds right: bits rot in a store, and nobody has read them since."""
    from pih.seal import verify

    try:
        verify.whole(made)
    except SealError as problem:
        problem.where = problem.where.replace(str(made), str(source))  # that is where they stay
        raise


def _copier(output: Path, key_paths: tuple[Path, ...]) -> Callable[[Path], object]:
    """How a layout is copied to `output`, sealed where there are keys; refused before anything is built."""
    if not key_paths:
        from pih.bundle import copy  # not needed to say that nothing has changed

        copy.replaceable(output)
        return lambda layout: copy.copied(layout, output, lambda made: _read_whole(made, layout))
    from pih.seal import attach
    from pih.trust import keys

    privates = [keys.load_private(path) for path in key_paths]
    attach.replaceable(output, privates)
    return lambda layout: attach.seal(layout, output, privates)
