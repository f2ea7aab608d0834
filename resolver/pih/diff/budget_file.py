"""A size budget's file: TOML, read strictly and written so that a diff of it reads well."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from pih.diff import amounts
from pih.diff.budget import Budget, Limit
from pih.reading import read_at_most, toml_of
from pih.structure import RefusedError, StructureError, dotted, show, structure
from pih.writing import replace
from pih_runtime.errors import UsageError

_MOST = 1 << 20  # bytes


def read(path: Path) -> Budget:
    """A budget's file; raises UsageError (exit 2) where it is not one."""
    fix = f"correct it, or delete it and write it anew: pih size … --budget {shlex.quote(str(path))} --update"
    try:
        budget = structure(toml_of(read_at_most(path, _MOST).decode()), Budget)
        _check(budget)
    except OSError as problem:
        raise UsageError(f"cannot read the budget: {problem.strerror}", where=str(path), fix=fix) from problem
    except StructureError as failure:
        first = failure.problems[0]
        raise UsageError(f"{dotted(first.path)}: {first.what}", where=str(path), fix=first.fix or fix) from failure
    except RefusedError as refused:
        raise UsageError(f"{refused.key}: {refused.what}", where=str(path), fix=refused.fix) from refused
    except ValueError as problem:
        raise UsageError(f"not TOML: {problem}", where=str(path), fix=fix) from problem
    return budget


def _check(budget: Budget) -> None:
    if amounts.share(budget.headroom) is None:
        raise RefusedError("headroom", f"{show(budget.headroom)} is no share", 'write it like "5%"')
    limits = {"total": budget.total} | {f"layers.{name}": limit for name, limit in budget.layers.items()}
    texts = {f"{key}.{kind}": text for key, limit in limits.items() for kind, text in attrs.asdict(limit).items()}
    texts |= {f"components.{name}": text for name, text in budget.components.items()}
    for key, text in texts.items():
        if text is not None and amounts.parsed(text) is None:
            raise RefusedError(key, f"{show(text)} is no amount", f"write it like {amounts.FORMS}")


def written(budget: Budget) -> str:
    """The text of its file."""
    return "\n".join(_lines(budget)) + "\n"


def write(path: Path, budget: Budget) -> None:
    """Write a budget's file, or leave the one that is there."""
    replace(path, written(budget))


def _lines(budget: Budget) -> Iterator[str]:
    yield "# Size budget: `pih size` fails (exit 1) where a limit does not hold; `--update` measures again."
    yield f"headroom = {_string(budget.headroom)}"
    yield from _table("total", _limits(budget.total))
    for name, limit in budget.layers.items():
        yield from _table(f"layers.{_key(name)}", _limits(limit))
    yield from _table("components", ((_key(name), _string(text)) for name, text in budget.components.items()))
    yield from _table("measured", ((_key(name), str(size)) for name, size in budget.measured.items()))


def _limits(limit: Limit) -> Iterator[tuple[str, str]]:
    return ((key, _string(text)) for key, text in attrs.asdict(limit).items() if text)


def _table(head: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"\n[{head}]"
    yield from (f"{key} = {value}" for key, value in rows)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _string(name)


def _string(text: str) -> str:
    """A basic string of TOML: as JSON's, but for one more character that must not stand there as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
