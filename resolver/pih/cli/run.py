"""`pih run`: answer one prompt with a deployment's image, through the API it serves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from pih.bundle import client, run
from pih.cli import _worker, _workspace


def _a_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Ranges let NaN pass, which compares with nothing."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a number")
    return value


def _a_text(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """What a shell passes on need not be a text."""
    try:
        (value or "").encode()
    except UnicodeEncodeError as problem:
        raise click.BadParameter(f"not UTF-8 from character {problem.start + 1} on") from problem
    return value


@click.command(epilog='Example: pih run --profile profiles/smollm2-cpu.toml --prompt "What is the capital of France?"')
@_workspace.profile_option
@click.option("--prompt", required=True, metavar="TEXT", callback=_a_text, help="What to ask, as one user message.")
@click.option("--system", metavar="TEXT", callback=_a_text, help="A system message before it.")
@click.option("--max-tokens", type=click.IntRange(1), default=512, show_default=True, help="Longest answer, in tokens.")
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    callback=_a_number,
    default=0.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the draws, where the temperature is not 0.")
@_worker.engine_option
@_worker.weights_option
@_workspace.offline_option
@_workspace.json_option
def command(
    profile_path: Path,
    prompt: str,
    system: str | None,
    max_tokens: int,
    temperature: float,
    seed: int | None,
    engine: str | None,
    weights_path: Path | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Answer one prompt, streaming; the worker has no network, only a socket in a private folder."""
    found, image = _worker.image_of(profile_path, weights_path, engine_name=engine, offline=offline)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    request: dict[str, Any] = {
        "model": found.lock.service.model_name,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": temperature,
    }
    if seed is not None:
        request["seed"] = seed
    with (
        run.private_folder() as listen,
        _worker.worker(image, listen, engine_name=engine, weights_path=weights_path) as running,
    ):
        pieces = []
        for piece in client.chat(running.address, request):
            pieces.append(piece)
            if not as_json:
                click.echo(piece, nl=False)
        click.echo(json.dumps({"answer": "".join(pieces)}, indent=2) if as_json else "")
