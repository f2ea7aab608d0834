"""`pih diff`: what differs between two bundles or locks, in words, and gates on it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from pih import lock as locks
from pih import profile
from pih.bundle import stored
from pih.cli import _bundle, _terminal, _workspace
from pih.columns import aligned
from pih.diff import facts, gates, markdown, report, revision
from pih.diff.compare import compare
from pih.diff.facts import Facts
from pih_runtime.errors import UsageError

GATE = 1  # exit code: as diff's own, something was found
_NUMBERS = frozenset({2, 3, 4})


@click.command(
    epilog="Example: pih diff main:profiles/smollm2-cpu.lock.json profiles/smollm2-cpu.lock.json --fail-on licence"
)
@click.argument("old")
@click.argument("new")
@_workspace.profile_choice("Whose lock to take where OLD or NEW is a git revision alone.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown for the comment of a pull request.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON, sizes in bytes.")
@click.option(
    "--max-growth",
    "growth",
    multiple=True,
    metavar="1MB|2%",
    help="Fail where the image, unpacked or compressed, grows by more; may be given several times.",
)
@click.option(
    "--fail-on",
    "kinds",
    multiple=True,
    metavar="KIND[,KIND]",
    help=f"Fail on any of {', '.join(gates.KINDS)}: new ones, and for a licence another one.",
)
def command(
    old: str,
    new: str,
    profile_path: Path | None,
    as_markdown: bool,
    as_json: bool,
    growth: tuple[str, ...],
    kinds: tuple[str, ...],
) -> None:
    """Say what differs between OLD and NEW: sizes, components, kernels, versions, permissions, licences, fallbacks.

    OLD and NEW are bundles (an image layout, an archive of one, the root that it was unpacked to, podman:NAME,
    docker:NAME), locks, or the lock of a git revision: REV:PATH as git names files, or REV alone with --profile.
    Nothing is built or checked out. Of a lock no sizes are known; what could not be compared is said.

    Exit code 1: a gate (--max-growth, --fail-on) did not hold; each one that did not is told on stderr.
    """
    form = _workspace.one_form(markdown=as_markdown, json=as_json)
    found = compare(_side(old, profile_path), _side(new, profile_path))
    wanted = [kind.strip() for listed in kinds for kind in listed.split(",")]
    tripped = gates.tripped(found, growth, wanted)
    if form == "json":
        click.echo(json.dumps(report.as_json(found, tripped), indent=2))
    elif form == "markdown":
        click.echo(markdown.rendered(found, tripped), nl=False)
    else:
        _terminal.say(_lines(report.lines(found)))
    for gate in tripped:
        _terminal.say([f"pih diff: {gate.gate}: {gate.why}"], err=True)
    if tripped:
        click.get_current_context().exit(GATE)


def _side(name: str, profile_path: Path | None) -> Facts:
    """A lock where the file is one, a bundle where there is something by that name, else a revision's lock."""
    path = Path(name)
    if path.is_file() and _is_json(path):
        return facts.of_lock(locks.read(path), name)
    if (name and path.exists()) or stored.named(name) is not None:
        return facts.of_bundle(_bundle.held(name), name)
    if ":" in name:
        return facts.of_lock(revision.read_named(name), name)
    if profile_path is not None:
        lock_path = locks.path_for(profile.load(profile_path).path)
        return facts.of_lock(revision.read(name, lock_path), f"{name}:{lock_path}")
    raise UsageError(
        f"there is no {name}", fix="name a bundle, a lock, REV:PATH of a lock in git, or REV with --profile FILE"
    )


def _is_json(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"{")


def _lines(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Rows of several cells that follow one another are a table."""
    for wide, group in itertools.groupby(rows, key=lambda row: len(row) > 1):
        cells = list(group)
        yield from aligned(cells, numbers=_NUMBERS) if wide else ("".join(row) for row in cells)
