"""`pih inspect`: what is in a bundle, and why."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from pih import licences, stale, trust
from pih.cli import _builders, _bundle, _output, _table, _terminal, _workspace
from pih.columns import aligned
from pih.inspect import libraries, overview, report, tree
from pih.inspect.bundle import Contents, checkpoint, components, known, origin
from pih.inspect.device_code import DeviceCode
from pih.inspect.explain import served
from pih.inspect.libraries import Library
from pih.inspect.opened import Opened
from pih.inspect.overview import Reasoned
from pih.lock import Lock
from pih.writing import replace
from pih_runtime.errors import UsageError


@click.command(epilog="Example: pih inspect podman:localhost/pih/smollm2-cpu:0.1.0 --tree")
@click.argument("bundle", required=False)
@_workspace.profile_choice("The profile whose image to show; it is built unless it is in the store.")
@click.option("--tree", "as_tree", is_flag=True, help="Show sizes as a tree: layers, components, largest files.")
@click.option("--files", "as_files", is_flag=True, help="List every file with its size, component and reason.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON: {identity, layers, files, …}.")
@click.option(
    "--html",
    "page",
    type=_output.Place(dir_okay=False),
    metavar="FILE",
    help="Write all of it as one page for a browser, which needs no network.",
)
@click.option(
    "--libraries",
    "with_libraries",
    is_flag=True,
    help="Read shared libraries too: device code in them, for which processors, and how much the target's can use.",
)
@_workspace.offline_option
def command(
    bundle: str | None,
    profile_path: Path | None,
    as_tree: bool,
    as_files: bool,
    as_json: bool,
    page: Path | None,
    with_libraries: bool,
    offline: bool,
) -> None:
    """Show what is in a bundle: identity, target, plugins with reasons, ops, memory, layers, components, licences.

    BUNDLE is the folder of an OCI image layout, an archive of one, the root that it was unpacked to or installed in, or
    an image in an engine's store: podman:NAME, docker:NAME. --profile takes the image of a profile instead.
    """
    form = _workspace.one_form(tree=as_tree, files=as_files, json=as_json)
    if (bundle is None) == (profile_path is None):
        raise UsageError("give a BUNDLE or a --profile", fix="pih inspect --profile profiles/smollm2-cpu.toml")
    if bundle is None:
        assert profile_path is not None
        start, built = _builders.build_profile(profile_path, offline=offline)
        found, gone = _bundle.held(bundle := str(built.output)), start.withdrawn
    else:
        found = _bundle.held(bundle)
        gone = _withdrawn(found.lock)
    read = libraries.libraries(found, Path(bundle)) if with_libraries else None
    more = _libraries(read) if read is not None else _unread(found, bundle) if not form else ()
    if page is not None:
        replace(page, report.page(found))
        _terminal.say([f"page     {page}"], err=bool(form))
    if page is None or form:
        lines = _json(found, read, gone) if form == "json" else (*_FORMS[form or "overview"](found), *more)
        _terminal.say(lines)


def _withdrawn(lock: Lock) -> dict[str, str]:
    """What the keyring's catalogs say now of a bundle's plugins from outside; said on stderr too."""
    if all(plugin.trust == "built-in" for plugin in lock.plugins):
        return {}
    gone = stale.withdrawn(lock, _workspace.beside(trust.here(_workspace.SOURCE_ROOT, os.environ), lock))
    for name, why in gone.items():
        _terminal.say([f"withdrawn {name} by its publisher: {why}"], err=True)
    return gone


def _json(held: Opened, read: tuple[Library, ...] | None, gone: dict[str, str]) -> Iterator[str]:
    more = {"withdrawn": gone} | ({} if read is None else {"libraries": libraries.as_json(read)})
    yield from json.dumps(overview.as_json(held) | more, indent=2).splitlines()


def _unread(held: Opened, bundle: str) -> Iterator[str]:
    """Libraries that may have device code, and how to see how much of it is of use: reading takes seconds."""
    found = libraries.likely(held)
    if found:
        command = shlex.join(["pih", "inspect", bundle, "--libraries"])
        sizes = ", ".join(f"{file.path} ({file.size / 1e6:.2f} MB)" for file in found)
        yield from (
            "",
            f"libraries from elsewhere for the device: {sizes}",
            f"  how much of them it can use: {command}",
        )


def _libraries(rows: tuple[Library, ...]) -> Iterator[str]:
    """A line for each library with device code, with what the target's devices load of it."""
    yield from ("", "libraries with device code" if rows else "libraries with device code: none")
    cells = [
        (
            row.path,
            f"{row.size / 1e6:.2f}",
            f"{row.usable / 1e6:.2f}",
            f"{row.usable / row.size:.1%}" if row.size else "",
            ", ".join(f"{name} {size / 1e6:.2f}" for name, size in row.processors.items()),
        )
        for row in rows
    ]
    head = ("library", "MB", "usable", "share", "for (MB, as it lies in the file)")
    if rows:
        yield from _indented(aligned([head, *cells], numbers=frozenset({1, 2, 3})))


def _tree(held: Opened) -> Iterator[str]:
    return tree.lines(tree.tree(held.contents, components(held.contents, known(held.lock))))


def _overview(held: Opened) -> Iterator[str]:
    contents, lock = held.contents, held.lock
    yield from aligned([fact for fact in _facts(held) if fact[1]])
    yield from ("", "plugins", *_indented(_plugins(overview.plugins(lock))))
    yield from ("", f"ops: {lock.plan.calls} calls", *_indented(_ops(lock)))
    if held.code:
        yield from ("", *_code(held.code))
    yield from ("", "layers", *_indented(_layers(contents)), "")
    rows = components(contents, known(lock), licences.of_components(lock))
    yield from _table.components(rows, contents).split("\n")


def _facts(held: Opened) -> list[tuple[str, str]]:
    contents, lock = held.contents, held.lock
    limits = lock.limits
    return [
        ("name", contents.name),
        ("form", contents.form),
        ("digest", contents.digest or "not known: this form of the bundle keeps no manifest"),
        ("config", contents.config),
        ("content", contents.content and f"{contents.content} whatever the layers' compression"),
        ("lock", contents.lock),
        ("profile", f"{lock.profile.file} sha256:{lock.profile.sha256}"),
        ("made by", f"pih {lock.pih}, lock schema {lock.schema}"),
        ("image", contents.reference),
        ("sealed", overview.seal(held)),
        ("target", overview.target(lock)),
        ("model", f"{lock.model.get('plugin')}: {checkpoint(lock)['source']}"),
        ("limits", f"context {limits.context}, batch {limits.batch}, tokens {limits.tokens}, KV {limits.kv_dtype}"),
        ("service", f"{lock.service.model_name} at {lock.service.host}:{lock.service.port}"),
        ("memory", overview.budget(lock)),
        ("weights", overview.weights(lock)),
        ("fallbacks", "; ".join(overview.fallbacks(lock)) or "none: every op has its kernel"),
    ]


def _plugins(rows: tuple[Reasoned, ...]) -> list[str]:
    cells = [
        (
            row.plugin.id,
            row.plugin.version,
            origin(row.plugin),
            ", ".join(overview.permissions(row.plugin)),
            row.reason,
        )
        for row in rows
    ]
    head = ("plugin", "version", "source", "may use", "reason")
    kept = [index for index in range(5) if any(cell[index] for cell in cells)]
    return aligned([[row[index] for index in kept] for row in (head, *cells)])


def _ops(lock: Lock) -> list[str]:
    rows = [
        (op.op if first else "", str(len(op.kernels)) if first else "", variant)
        for op in served(lock)
        for first, variant in zip((True, *[False] * len(op.variants)), op.variants, strict=False)
    ]
    return aligned([("op", "kernels", "formats and precision"), *rows], numbers=frozenset({1}))


def _code(code: DeviceCode) -> Iterator[str]:
    yield f"device code: {code.code / 1e6:.2f} MB for {code.arch} in {len(code.entries)} entries; {code.proof}"
    head = ("entry", "op", "calls", "code", "registers", "shared", "spills (in bytes; calls a step)")
    rows = [
        (
            entry.name,
            entry.op,
            *map(str, (entry.calls, entry.code, entry.registers, entry.shared, entry.frame)),
        )
        for entry in code.entries
    ]
    yield from _indented(aligned([head, *rows], numbers=frozenset({2, 3, 4, 5, 6})))


def _layers(held: Contents) -> list[str]:
    head = ("layer", "unpacked", "shipped", "digest (sizes in MB)")
    rows = [
        (
            layer.name,
            f"{layer.size / 1e6:.2f}",
            f"{layer.compressed / 1e6:.2f}" if layer.compressed else "",
            layer.digest or (f"{layer.diff_id} unpacked" if layer.diff_id else ""),
        )
        for layer in held.layers
    ]
    return aligned([head, *rows], numbers=frozenset({1, 2}))


def _files(held: Opened) -> Iterator[str]:
    rows = [(str(file.size), file.path, f"{file.component}: {file.reason}") for file in held.contents.files]
    yield from aligned(rows, numbers=frozenset({0})) if rows else ()


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


_FORMS = {"overview": _overview, "tree": _tree, "files": _files}
