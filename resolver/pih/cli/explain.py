"""`pih explain`: the decisions for a profile as a tree."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pih.build.progress import renderer
from pih.cli import _terminal, _workspace
from pih.inspect.explain import Branch, as_json, explanation, tree

if TYPE_CHECKING:
    from rich.tree import Tree


@click.command(epilog="Example: pih explain --profile profiles/smollm2-cpu.toml")
@_workspace.profile_option
@_workspace.offline_option
@click.option("--json", "json_wanted", is_flag=True, help="Print the decisions as JSON.")
def command(profile_path: Path, offline: bool, json_wanted: bool) -> None:
    """Show the decisions for a profile as a tree: capability, provider, reason, line of the profile.

    Below them ops with their kernels, fallbacks, memory, artifacts. Takes the lock as it is; resolves only where
    there is none yet.
    """
    with renderer() as listener:
        start = _workspace.deployment(profile_path, offline=offline, listener=listener)
    found = explanation(start.lock, start.profile, _workspace.SOURCE_ROOT)
    if json_wanted:
        click.echo(json.dumps(as_json(found) | {"withdrawn": start.withdrawn}, indent=2))
    elif sys.stdout.isatty():
        _show(tree(found))
    else:
        _terminal.say(_indented(tree(found), 0))


def _indented(branch: Branch, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{branch.text}"
    for below in branch.below:
        yield from _indented(below, depth + 1)


def _show(branch: Branch) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def grown(branch: Branch, tree: Tree) -> Tree:
        for below in branch.below:
            grown(below, tree.add(Text(below.text, style="" if below.below else "dim")))
        return tree

    Console().print(grown(branch, Tree(Text(branch.text, style="bold"))))
