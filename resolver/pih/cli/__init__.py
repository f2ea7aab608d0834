"""The command line: one module for each command group; nothing imports this package.

A command's module is imported when it is called, so that `pih build` on an unchanged tree
does not wait for what `pih run` needs.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import TextIO

import click

from pih.cli import _errors
from pih_runtime.errors import PihError

COMMANDS = {
    "lock": "resolve a profile into its lock",
    "build": "build the sealed image of a profile",
    "run": "answer one prompt with the built image",
    "serve": "serve the built image's OpenAI-compatible API",
    "inspect": "show what is in a bundle, and why",
    "explain": "show the decisions for a profile, each with its reason",
    "why": "say why something is part of a deployment",
    "diff": "say what differs between two bundles or locks, with gates for CI",
    "size": "show how large a bundle is, and hold it to a budget",
    "fetch": "download a lock's artifacts into the store",
    "seal": "attach SBOM, provenance and signatures to a bundle",
    "verify": "check every byte of a bundle, and who vouches for it",
    "key": "make and show keys to sign with",
    "export": "write a bundle as one file that installs itself without a network",
    "mirror": "carry all that building needs to a host without a network",
    "catalog": "plugins from outside, and whom to believe about them",
    "store": "look at and fill the artifact store",
    "weights": "pack weights that are delivered separately",
    "plugin": "write a plugin, or check that one keeps its contract",
    "doctor": "say what this host can build and run",
}


class _Commands(click.Group):
    """Commands by name, their modules imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pih.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, whose error suggests a near name only of commands that were imported."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            near = get_close_matches(args[0], COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{problem.message} Did you mean {near[0]!r}?", ctx) from problem

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version="0.1.0", prog_name="pih")
@click.option(_errors.OPTION, is_flag=True, expose_value=False, help="Print a failure on stderr as one line of JSON.")
def pih() -> None:
    """Compile one deployment of a language model into one sealed OCI image.

    \b
    Example:
      pih build --profile profiles/smollm2-cpu.toml
      pih run --profile profiles/smollm2-cpu.toml --prompt "What is the capital of France?"

    Exit codes: 1 a gate of diff or size, 2 usage, 3 profile, 4 resolution, 5 lock, 6 fetch, 7 build, 8 seal or verify,
    9 runtime.
    """


def main() -> None:
    """Run the command line; a failure becomes its message on stderr and its exit code."""
    _open()
    try:
        code = _code()
    finally:
        _drop(sys.stderr)
        _drop(sys.stdout)
    sys.exit(code)


def _code() -> int:
    try:
        with pih.make_context("pih", sys.argv[1:]) as context:  # click's own main ends with 1 where a pipe is closed
            pih.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except (PihError, click.ClickException) as error:
        return _failed(error)
    except (click.Abort, KeyboardInterrupt, EOFError):
        with suppress(OSError):
            sys.stderr.write("\n")  # after the ^C that a terminal shows
        return 130  # interrupted, as SIGINT would say
    except BrokenPipeError:
        return 141  # the reader of our output went away, as SIGPIPE would say
    except OSError as problem:
        if problem.filename is None and _drop(sys.stdout):
            problem.filename = "the output"
        return _failed(_errors.of_system(problem))
    return 0


def _failed(error: PihError | click.ClickException) -> int:
    with suppress(OSError):  # the code says it too
        _errors.show(error, as_json=_errors.wants_json(sys.argv[1:]))
    return error.exit_code


def _open() -> None:
    """A stream that is closed takes nothing, and its number must not become that of a file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "r+" if number else "r", closefd=False))  # noqa: SIM115 - for all the run
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a name may hold what cannot be shown


def _drop(stream: TextIO) -> bool:
    """Let go of what cannot be written, and say so: the end of Python would fail with a code of its own."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return False
