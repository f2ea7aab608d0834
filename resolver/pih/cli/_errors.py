"""How a failure is shown: words for people, or with `pih --json-errors …` one line of JSON for machines."""

from __future__ import annotations

import errno
import itertools
import json
import sys
from typing import Any

import click

from pih.cli._terminal import printable
from pih_runtime.errors import LockError, PihError, SealError, UsageError, WorkerError

OPTION = "--json-errors"
_SLIPS = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP)
_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


def wants_json(arguments: list[str]) -> bool:
    """Whether the option is among those before the command, also where another of them is wrong."""
    return OPTION in itertools.takewhile(lambda argument: argument.startswith("-"), arguments)


def show(error: PihError | click.ClickException, *, as_json: bool) -> None:
    """Write the failure to stderr; click's own words for a person's slip on the command line."""
    if as_json:
        sys.stderr.write(json.dumps(described(error)) + "\n")
    elif isinstance(error, click.ClickException):
        error.show()
    else:
        sys.stderr.write("\n".join(map(printable, f"pih: error: {_on_lines_of_its_own(error)}".split("\n"))) + "\n")


def of_system(problem: OSError) -> PihError:
    """What the system refused: a path that cannot be what it is given for, else the state of the host."""
    kind: type[PihError] = WorkerError
    if problem.errno in _SLIPS and problem.filename:
        kind, fix = UsageError, "give another path, or put this one right"
    elif problem.errno in _ROOM:
        fix = "make room on its disk, and try again"
    elif problem.errno in _ACCESS:
        fix = "give access, and try again"
    else:
        fix = "see what the host lacks, and try again"
    return kind(problem.strerror or str(problem), where=str(problem.filename or ""), fix=fix)


def _on_lines_of_its_own(error: PihError) -> PihError:
    """What comes from a bundle or lock begins no line; other failures say their causes line by line."""
    if not isinstance(error, SealError | LockError):
        return error
    return PihError(printable(error.what), where=printable(error.where), fix=printable(error.fix))


def described(error: PihError | click.ClickException) -> dict[str, Any]:
    """{error, exit_code, what, where, fix}; error is the class, as in the page of exit codes."""
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "pih"
        return described(UsageError(error.format_message(), where=command, fix=f"{command} --help"))
    return {
        "error": type(error).__name__,
        "exit_code": error.exit_code,
        "what": error.what,
        "where": error.where,
        "fix": error.fix,
    }
