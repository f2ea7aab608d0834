"""`pih catalog`: which plugins there are, from where, on whose word; and the keys that are believed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import attrs
import click

from pih import profile, trust
from pih.catalog import Catalog, Manifest
from pih.cli import _output, _path, _terminal, _workspace
from pih.columns import aligned
from pih.origin import Origin
from pih.structure import nearest, unstructure
from pih.trust import add as adding
from pih.trust import index, keyring, keys, places, publish
from pih_runtime.errors import UsageError

_PATH = _path.Path(path_type=Path)
_WHAT_IS = _path.Path(path_type=Path, exists=True)
_profile = click.option(
    "--profile", "profile_path", type=_PATH, metavar="FILE", help="Also the plugins that this profile brings."
)
_key = click.option("--key", "key_path", type=_PATH, metavar="FILE", required=True, help="Your private key.")


@click.group()
def command() -> None:
    """Plugins from outside the source tree, and whom to believe about them. `pih key` makes keys.

    \b
    Example: pih catalog add ./vendor-catalog
    """


@command.command("list", epilog="Example: pih catalog list --profile examples/npu/npu.toml")
@_profile
@_workspace.json_option
def listing(profile_path: Path | None, as_json: bool) -> None:
    """List every plugin, where it comes from, on whose word; those that are refused with the reason."""
    known = _catalog(profile_path)
    rows = [_row(plugin, known) for plugin in known.plugins]
    rows += [
        {"id": item.id, "version": item.version, "source": item.source, "trust": "refused", "why": item.why}
        for item in known.refused
    ]
    rows.sort(key=lambda row: (row["id"], row["version"]))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    _terminal.say(aligned([[row[key] for key in ("id", "version", "trust", "source", "why")] for row in rows]))


@command.command("show", epilog="Example: pih catalog show backend/cpu")
@click.argument("plugin_id", metavar="ID")
@_profile
@_workspace.json_option
def show(plugin_id: str, profile_path: Path | None, as_json: bool) -> None:
    """Show what a plugin says of itself: versions, capabilities, permissions, version matrix, and its origin."""
    known = _catalog(profile_path)
    found = [plugin for plugin in known.plugins if plugin.id == plugin_id]
    refused = [item for item in known.refused if item.id == plugin_id]
    if not found and not refused:
        ids = sorted({plugin.id for plugin in known.plugins} | {item.id for item in known.refused})
        near = nearest(plugin_id, ids)
        raise UsageError(f"there is no plugin {plugin_id}", fix=f"did you mean {near}?" if near else "pih catalog list")
    data = [{**_row(plugin, known), **_others(plugin, known), "manifest": unstructure(plugin)} for plugin in found]
    if as_json:
        click.echo(json.dumps({"plugins": data, "refused": [attrs.asdict(item) for item in refused]}, indent=2))
        return
    for plugin in found:
        _terminal.say(_described(plugin, known).split("\n"))
    for item in refused:
        _terminal.say(
            [
                f"{item.id} {item.version}",
                f"  from     {item.source}",
                f"  refused  {item.why}",
                f"  to fix   {item.fix}",
            ]
        )


@command.command("add", epilog="Example: pih catalog add ./vendor-catalog --fingerprint ed25519:0123…")
@click.argument("path", type=_WHAT_IS)
@click.option("--fingerprint", metavar="KEY", help="The key that it must be signed with, as its publisher told you.")
@click.option(
    "--name", default="", help="What locks and `remove` call it; by default as before, else as its publisher does."
)
@click.option("--yes", is_flag=True, help="Believe whoever signed it; nothing is asked.")
@_workspace.json_option
def add(path: Path, fingerprint: str | None, name: str, yes: bool, as_json: bool) -> None:
    """Believe whoever signed a catalog, plugin or archive, after showing the key; locks then choose from PATH too."""
    if name and not keyring.is_name(name):
        raise UsageError(f"{name[:80]!r} cannot be a catalog's name", fix=index.NAMES)
    known = keyring.load(os.environ)
    offered = adding.offer(path, known, name)
    lines = [f"{offered.name}: {len(offered.plugins)} plugins, signed by {offered.fingerprint}"]
    lines += [f"  {plugin} {version}" for plugin, version in offered.plugins]
    if offered.before is not None:
        lines.append(f"its key takes the place of {offered.before.fingerprint}, which vouches for it")
    if not as_json:
        _terminal.say(lines)
    if fingerprint is not None and fingerprint != offered.fingerprint:
        raise UsageError(
            f"it is signed by {offered.fingerprint}, not by {fingerprint}",
            where=str(path),
            fix="ask its publisher which key is right; until then do not use it",
        )
    believed = known.find(offered.fingerprint) is not None
    if fingerprint is None and not yes and not believed and not _confirmed():
        raise UsageError(
            "nothing was added: nobody has said that this key is the publisher's",
            fix=f"compare it with what the publisher tells, then --fingerprint {offered.fingerprint}",
        )
    keyring.change(os.environ, lambda ring: adding.accepted(offered, ring))
    if as_json:
        data = {"name": offered.name, "fingerprint": offered.fingerprint, "plugins": offered.plugins}
        click.echo(json.dumps({**data, "keyring": str(keyring.path_of(os.environ))}, indent=2))
    else:
        click.echo(f"added to {keyring.path_of(os.environ)}")


@command.command("remove", epilog="Example: pih catalog remove vendor")
@click.argument("name")
def remove(name: str) -> None:
    """Search a catalog no more; its key stays believed (see `revoke`)."""
    keyring.change(os.environ, lambda ring: adding.removed(ring, name))


@command.command("keys", epilog="Example: pih catalog keys --json")
@_workspace.json_option
def believed(as_json: bool) -> None:
    """List the keys of your keyring: trusted, rotated or revoked."""
    known = keyring.load(os.environ)
    if as_json:
        click.echo(json.dumps(unstructure(known), indent=2))
        return
    for key in known.keys:
        _terminal.say([f"{key.fingerprint}  {key.state:8}  {key.name}  {key.note}".rstrip()])


@command.command("revoke", epilog='Example: pih catalog revoke ed25519:0123… --reason "laptop stolen"')
@click.argument("fingerprint")
@click.option("--reason", required=True, help="What to say when something is refused for it.")
@click.option("--unknown", is_flag=True, help="Also a key that is not in your keyring, so that it never gets in.")
def revoke(fingerprint: str, reason: str, unknown: bool) -> None:
    """Never believe a key again: locks with what it signed are refused from now on."""
    if not keys.is_fingerprint(fingerprint):
        raise UsageError(f"{fingerprint} is no fingerprint", fix="as `pih catalog keys` shows it")
    ring = keyring.load(os.environ)
    known = ring.find(fingerprint)
    if known is None and not unknown:
        near = nearest(fingerprint, [key.fingerprint for key in ring.keys])
        meant = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"your keyring has no key {fingerprint}", fix=f"{meant}pih catalog keys; or refuse it ahead, with --unknown"
        )
    keyring.change(os.environ, lambda ring: adding.revoked(ring, fingerprint, reason))
    _terminal.say([f"revoked {fingerprint}{f' ({known.name})' if known and known.name else ''}: {reason}"])


@command.command("verify", epilog="Example: pih catalog verify ./vendor-catalog --json")
@click.argument("path", type=_WHAT_IS)
@_workspace.json_option
def verify(path: Path, as_json: bool) -> None:
    """Check the signature and every file of a catalog, plugin or archive against your keyring."""
    rows = [
        {
            "id": item.content.manifest.id,
            "version": item.content.manifest.version,
            "sha256": item.content.sha256,
            "trust": item.verdict.key,
            "withdrawn": item.content.manifest.yanked,
        }
        for item in adding.verified(path, keyring.load(os.environ))
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        gone = f"  withdrawn: {row['withdrawn']}" if row["withdrawn"] else ""
        _terminal.say([f"{row['id']} {row['version']}  sha256 {row['sha256']}  signed by {row['trust']}{gone}"])


@command.command("sign", epilog="Example: pih catalog sign ./my-npu --key publisher.pem --output my-npu-1.0.tar")
@click.argument("path", type=_WHAT_IS)
@_key
@click.option("--name", default="", help="What a new catalog is called.")
@click.option(
    "--output",
    type=_output.Place(),
    metavar="FILE",
    help="Pack the plugin into this archive, and sign that.",
)
def signing(path: Path, key_path: Path, name: str, output: Path | None) -> None:
    """Sign a plugin's folder or archive, or index and sign a folder of them as a catalog."""
    private = keys.load_private(key_path)
    if output is not None:
        publish.pack(path, output, private)
        click.echo(output)
    elif path.is_dir() and not places.is_plugin(path):
        click.echo(publish.sign_catalog(path, name, private))
    else:
        click.echo(publish.sign_plugin(path, private))


@command.command("rotate", epilog="Example: pih catalog rotate ./vendor-catalog --key old.pem --new-key new.pem")
@click.argument("path", type=_WHAT_IS)
@_key
@click.option("--new-key", "new_path", type=_PATH, metavar="FILE", required=True, help="The key from now on.")
def rotate(path: Path, key_path: Path, new_path: Path) -> None:
    """Sign a catalog with a new key, for which the old one vouches; users then add it again."""
    click.echo(publish.rotate(path, keys.load_private(key_path), keys.load_private(new_path)))


def _catalog(profile_path: Path | None) -> Catalog:
    if profile_path is not None:
        return _workspace.offers_of(profile.load(profile_path)).beside(())
    return trust.here(_workspace.SOURCE_ROOT, os.environ).beside(())


def _row(plugin: Manifest, known: Catalog) -> dict[str, Any]:
    origin = known.origin(plugin)
    return {
        "id": plugin.id,
        "version": plugin.version,
        "source": origin.source if origin else "workspace",
        "trust": origin.trust if origin else "built-in",
        "why": f"withdrawn: {plugin.yanked}" if plugin.yanked else _rivals(origin),
    }


def _others(plugin: Manifest, known: Catalog) -> dict[str, list[str]]:
    """Other places that have it: with the same files, and with others where nothing says which is meant."""
    origin = known.origin(plugin)
    return {"also": list(origin.copies) if origin else [], "rivals": list(origin.rivals) if origin else []}


def _rivals(origin: Origin | None) -> str:
    if origin is None or not origin.rivals:
        return ""
    return f"not decided: {' and '.join(origin.rivals)} has other files of the same version"


def _described(plugin: Manifest, known: Catalog) -> str:
    row, origin = _row(plugin, known), known.origin(plugin)
    permissions = plugin.permissions
    asked = [f"network {permissions.network}", *permissions.devices, *permissions.paths]
    asked += [f"${name}" for name in permissions.environment]
    lines = [
        f"{plugin.id} {plugin.version}",
        f"  {plugin.summary}",
        f"  from         {row['source']}",
        f"  trust        {row['trust']}",
        *([f"  sha256       {origin.sha256}"] if origin else []),
        *(f"  also in      {copy}" for copy in (origin.copies if origin else ())),
        *(f"  not decided  {rival} has other files of it" for rival in (origin.rivals if origin else ())),
        *([f"  withdrawn    {plugin.yanked}"] if plugin.yanked else []),
        f"  provides     {', '.join(f'{name} {version}' for name, version in plugin.provides.items())}",
        f"  requires     {', '.join(f'{name} {wanted}' for name, wanted in plugin.requires.items()) or 'nothing'}",
        f"  permissions  {', '.join(asked)}",
        *(f"  tested       {item.version} with PIH {item.pih}, ABI {item.abi}" for item in plugin.tested),
    ]
    return "\n".join(lines)


def _confirmed() -> bool:
    return sys.stdin.isatty() and click.confirm("Is this the publisher's key?")
