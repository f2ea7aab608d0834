"""`pih size`: how large a bundle is, layer by layer and component by component, and a budget for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pih.cli import _builders, _bundle, _output, _terminal, _workspace
from pih.columns import aligned
from pih.diff import budget, budget_file, facts
from pih.diff.amounts import shown
from pih.diff.budget import Row
from pih.diff.facts import Image
from pih.structure import unstructure
from pih_runtime.errors import UsageError

OVER = 1  # exit code


@click.command(epilog="Example: pih size --profile profiles/smollm2-cpu.toml --budget profiles/sizes/smollm2-cpu.toml")
@click.argument("bundle", required=False)
@_workspace.profile_choice("The profile whose image to measure; it is built unless it is in the store.")
@click.option(
    "--budget", "budget_path", type=_output.Place(dir_okay=False), metavar="FILE", help="Limits to hold (TOML)."
)
@click.option("--update", is_flag=True, help="Write the present sizes with a headroom to the budget, and pass.")
@click.option("--headroom", default="", metavar="SHARE", help="Of --update; by default the budget's own, else 5%.")
@_workspace.offline_option
@_workspace.json_option
def command(
    bundle: str | None,
    profile_path: Path | None,
    budget_path: Path | None,
    update: bool,
    headroom: str,
    offline: bool,
    as_json: bool,
) -> None:
    """Show the sizes of a bundle, unpacked and as it is shipped, by layer and component.

    BUNDLE is an image layout, an archive of one, the root that it was unpacked to, podman:NAME or docker:NAME.

    With --budget each limit of the file is checked: of the total, of layers, of components, of components that have
    none of their own ("*"). Exit code 1 where one does not hold; the lines that fail say by how much, and what grew.
    """
    if (bundle is None) == (profile_path is None):
        raise UsageError("give a BUNDLE or a --profile", fix="pih size --profile profiles/smollm2-cpu.toml")
    if budget_path is None and (update or headroom):
        raise UsageError("--update and --headroom are about a budget", fix="name its file: --budget FILE")
    if bundle is None:
        assert profile_path is not None
        bundle = str(_builders.build_profile(profile_path, offline=offline)[1].output)
    image = facts.of_bundle(_bundle.held(bundle), bundle).image
    assert image is not None
    rows: tuple[Row, ...] = ()
    if budget_path is not None and update:
        before = budget_file.read(budget_path) if budget_path.exists() else None
        budget_file.write(budget_path, budget.updated(before, image, headroom))
    if budget_path is not None:
        rows = budget.judged(budget_file.read(budget_path), image)
    if as_json:
        click.echo(json.dumps(_json(image, rows), indent=2))
    else:
        _terminal.say(_lines(image, rows))
    if any(row.over for row in rows):
        click.get_current_context().exit(OVER)


def _lines(image: Image, rows: tuple[Row, ...]) -> list[str]:
    if not rows:
        layers = [(layer.name, shown(layer.size), _shipped(layer.compressed)) for layer in image.layers]
        total = ("total", shown(image.size), _shipped(image.compressed))
        lines = aligned([("layer", "unpacked", "shipped"), *layers, total], numbers=frozenset({1, 2}))
        parts = [(item.name, shown(item.size), item.version) for item in image.components]
        return [*lines, "", *aligned([("component", "unpacked", "version"), *parts], numbers=frozenset({1}))]
    cells = [(row.what, shown(row.size), shown(row.limit), _verdict(row)) for row in rows]
    return aligned([("size of", "is", "limit", ""), *cells], numbers=frozenset({1, 2}))


def _verdict(row: Row) -> str:
    return f"OVER by {shown(row.over)}{'; ' + row.why if row.why else ''}" if row.over else "ok"


def _shipped(size: int | None) -> str:
    return "-" if size is None else shown(size)


def _json(image: Image, rows: tuple[Row, ...]) -> dict[str, Any]:
    """Sizes in bytes; budget: a row for each limit, empty without one."""
    return {
        "digest": image.digest,
        "unpacked": image.size,
        "compressed": image.compressed,
        "layers": unstructure(image.layers),
        "components": unstructure(image.components),
        "budget": [{**unstructure(row), "over": row.over} for row in rows],
        "ok": not any(row.over for row in rows),
    }
