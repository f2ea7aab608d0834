"""`pih weights pack`: the weights of a profile that delivers them separately, as its kernels read them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pih.cli import _workspace


@click.group()
def command() -> None:
    r"""Weights that are delivered apart from the image.

    \b
    Example: pih weights pack --profile profiles/qwen3-cpu.toml --output qwen3.safetensors
    """
