"""`pih inspect`: what is in a bundle, and why."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pih.cli import _builders, _table, _workspace
from pih.inspect import overview
from pih.inspect.bundle import Contents, checkpoint, components, known, origin
from pih.inspect.opened import Opened, opened
from pih.inspect.overview import Reasoned
from pih_runtime.errors import UsageError


@click.command(epilog="Example: pih inspect --profile profiles/smollm2-cpu.toml --json")
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The profile whose image to show; it is built unless it is in the store.",
)
@click.option("--files", "files_wanted", is_flag=True, help="List every file with its size, component and reason.")
@_workspace.offline_option
@click.option("--json", "json_wanted", is_flag=True, help="Print all of it as JSON: {identity, layers, files, …}.")
def command(
    bundle: Path | None, profile_path: Path | None, files_wanted: bool, offline: bool, json_wanted: bool
) -> None:
    """Show what is in a bundle: identity, target, plugins with reasons, fallbacks, memory, layers, components.

    BUNDLE is the folder of an OCI image layout, an archive of one, or the root that it was unpacked to; --profile
    takes the image of a profile instead.
    """
    if (bundle is None) == (profile_path is None):
        raise UsageError("give a BUNDLE or a --profile", fix="pih inspect --profile profiles/smollm2-cpu.toml")
    if bundle is None:
        assert profile_path is not None
        bundle = _builders.build_profile(profile_path, offline=offline)[1].output
    held = opened(bundle)
    if json_wanted:
        click.echo(json.dumps(overview.as_json(held), indent=2))
        return
    lines = _files(held.contents) if files_wanted else _overview(held)
    click.echo("\n".join(lines))


def _overview(held: Opened) -> list[str]:
    contents, lock = held.contents, held.lock
    limits = lock.limits
    facts = [
        ("name", contents.name),
        ("digest", contents.digest),
        ("lock", contents.lock),
        ("image", contents.reference),
        ("target", overview.target(lock)),
        ("model", f"{lock.model.get('plugin')}: {checkpoint(lock)['source']}"),
        ("limits", f"context {limits.context}, batch {limits.batch}, tokens {limits.tokens}, KV {limits.kv_dtype}"),
        ("service", f"{lock.service.model_name} at {lock.service.host}:{lock.service.port}"),
        ("memory", overview.budget(lock)),
        ("fallbacks", "; ".join(overview.fallbacks(lock)) or "none: every op has its kernel"),
    ]
    lines = _table.aligned([fact for fact in facts if fact[1]])
    lines += ["", "plugins", *_indented(_plugins(overview.plugins(lock)))]
    lines += ["", "layers", *_indented(_layers(contents))]
    return [*lines, "", _table.components(components(contents, known(lock)), contents)]


def _plugins(rows: tuple[Reasoned, ...]) -> list[str]:
    cells = []
    for row in rows:
        plugin = row.plugin
        source = origin(plugin)
        wider = [plugin.permissions.network] if plugin.permissions.network != "none" else []
        reaches = ", ".join([*wider, *plugin.permissions.devices, *plugin.permissions.paths])
        cells.append((plugin.id, plugin.version, source, reaches, row.reason))
    head = ("plugin", "version", "source", "may use", "reason")
    kept = [index for index in range(5) if any(cell[index] for cell in cells)]
    return _table.aligned([[row[index] for index in kept] for row in (head, *cells)])


def _layers(held: Contents) -> list[str]:
    head = ("layer", "unpacked", "shipped", "digest (sizes in MB)")
    rows = [
        (layer.name, f"{layer.size / 1e6:.2f}", f"{layer.compressed / 1e6:.2f}" if layer.digest else "", layer.digest)
        for layer in held.layers
    ]
    return _table.aligned([head, *rows], numbers=frozenset({1, 2}))


def _files(held: Contents) -> list[str]:
    rows = [(str(file.size), file.path, f"{file.component}: {file.reason}") for file in held.files]
    return _table.aligned(rows, numbers=frozenset({0}))


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
