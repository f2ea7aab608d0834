"""`pih doctor`: what this host can build and run, and what is missing for the rest."""

from __future__ import annotations

import json

import click

from pih.inspect.host import Check, survey, verdict


@click.command(epilog="Example: pih doctor --json")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def command(as_json: bool) -> None:
    """Say what this host can build and run: ISA, memory, runners, Nix, Bazel, GPU."""
    checks = survey()
    if as_json:
        rows = [
            {"name": c.name, "ok": c.ok, "found": c.found, "needed_for": c.needed_for, "fix": c.fix} for c in checks
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    for check in checks:
        click.echo(_line(check))
    for sentence in verdict(checks):
        click.echo(sentence)


def _line(check: Check) -> str:
    mark = "yes" if check.ok else "no "
    text = f"{mark}  {check.name:22} {check.found}"
    return text if check.ok else f"{text}\n     {'':22} only for {check.needed_for}; to get it: {check.fix}"
