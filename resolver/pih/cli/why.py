"""`pih why`: the reasons for a plugin, artifact, op, kernel or file, each chain back to a line of the profile."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from pih import lock as locks
from pih.build.progress import renderer
from pih.cli import _builders, _bundle, _path, _terminal, _workspace
from pih.inspect import causes, reasons, why
from pih.inspect.causes import Graph
from pih.inspect.reasons import Chain
from pih.inspect.why import Answer
from pih_runtime.errors import UsageError


@click.command(epilog="Example: pih why libstdc++.so.6 --profile profiles/smollm2-cpu.toml")
@click.argument("name")
@click.argument("bundle", required=False)
@click.option(
    "--lock",
    "lock_path",
    type=_path.Path(path_type=Path),
    metavar="FILE",
    help="Ask a lock: knows all but an image's files.",
)
@_workspace.profile_choice("Ask a profile's lock, and for a file its image, which is built unless it is in the store.")
@_workspace.offline_option
@_workspace.json_option
def command(
    name: str, bundle: str | None, lock_path: Path | None, profile_path: Path | None, offline: bool, as_json: bool
) -> None:
    """Say why NAME is part of a deployment: every chain of reasons up to a line of its profile, the shortest first.

    NAME is a plugin, capability, artifact, op or kernel, a file by its path or the end of one, a module, or the
    digest of a file, artifact or layer or the beginning of it. BUNDLE is an image layout, an archive of one, the
    root that it was unpacked to, or an image in an engine's store: podman:NAME, docker:NAME.
    """
    if [bundle, lock_path, profile_path].count(None) != 2:
        raise UsageError(
            "give a BUNDLE, a --lock or a --profile",
            fix=f"pih why {shlex.quote(name)} --profile profiles/smollm2-cpu.toml",
        )
    if profile_path is not None:
        found = _of_profile(name, profile_path, offline=offline)
    elif bundle is not None:
        held = _bundle.held(bundle)
        found = _asked(causes.of_contents(causes.of_lock(held.lock), held.contents), name, bundle)
    else:
        assert lock_path is not None
        found = _asked(causes.of_lock(locks.read(lock_path)), name, str(lock_path))
    if as_json:
        click.echo(json.dumps({"name": name, "answers": [why.as_json(answer) for answer in found]}, indent=2))
        return
    lines = "\n\n".join(_text(answer) for answer in found).split("\n")
    _terminal.say(lines)


def _asked(graph: Graph, name: str, where: str) -> tuple[Answer, ...]:
    found = why.answers(graph, name)
    if not found:
        raise why.unknown(graph, name, where)
    return found


def _of_profile(name: str, profile_path: Path, *, offline: bool) -> tuple[Answer, ...]:
    """From the lock where that knows the name, so that nothing is built for it."""
    with renderer() as listener:
        start = _workspace.deployment(profile_path, offline=offline, listener=listener)
    graph = causes.of_lock(start.lock)
    found = why.answers(graph, name)
    if not found:
        _, built = _builders.build_profile(profile_path, offline=offline)
        found = _asked(causes.of_contents(graph, _bundle.held(str(built.output)).contents), name, str(profile_path))
    return tuple(why.renewed(answer, lambda chain: reasons.current(chain, start.profile)) for answer in found)


def _text(answer: Answer) -> str:
    thing = answer.thing
    lines = [f"{thing.kind} {thing.name}: {thing.about}"]
    if thing.digest:
        lines.append(f"  {thing.digest}")
    if answer.component is not None:
        component, chain = answer.component
        lines.append(f"  of {component.kind} {component.name} {component.about}: {reasons.joined(chain)}")
    lines += ["", *_chain(answer.chains[0])]
    others = answer.chains[1:]
    if others:
        count = f"{len(others)} more" + (" of many" if answer.more else "")
        lines += ["", f"{count}, each longer or as long:"]
        for chain in others:
            lines += ["", *_chain(chain)]
    return "\n".join(lines)


def _chain(chain: Chain) -> list[str]:
    return [f"  {chain[0]}", *(f"    → {link}" for link in chain[1:])]
