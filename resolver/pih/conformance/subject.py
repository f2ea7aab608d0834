"""The plugin that is tried, in its own process: how it is started, in which bundle, and stopped."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pih.conformance import bundles, standins
from pih_runtime.contracts import Context
from pih_runtime.plan import Plan

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tried. report: of the pack it runs, its own or that of PIH. root: a bundle's /pih to write.

    entry, build: of its two halves, '' where it has none. plan, stored: what the bundle holds unless a check says.
    """

    entry: str
    build: str
    provides: tuple[str, ...]
    requires: tuple[str, ...]
    kind: str
    report: Mapping[str, Any]
    isa: str
    root: Path
    folder: Path
    host_bytes: int
    plan: Plan
    stored: Mapping[str, bytes]

    def start(self, plan: Plan | None = None, stored: Mapping[str, bytes] | None = None, **how: Any) -> Any:
        """Write a bundle with this plan and call the entry there. how: as for `context`."""
        bundles.write(self.root, plan or self.plan, self.stored if stored is None else stored)
        return self.call(self.context(plan, stored, **how))

    def call(self, context: Context) -> Any:
        """The entry, in the bundle as it lies there."""
        return function(self.entry)(context)

    def context(
        self,
        plan: Plan | None = None,
        stored: Mapping[str, bytes] | None = None,
        *,
        broken: str = "",
        fail_at: int = 0,
        served: Mapping[str, Any] = _NOTHING,
        **changed: Any,
    ) -> Context:
        """What it is given. broken, fail_at: see `standins`. served: other stand-ins. changed: of the context."""
        plan, stored = plan or self.plan, self.stored if stored is None else stored
        providers = {**standins.providers(plan, stored, fail_at), **served}
        return replace(standins.context(self.root, self.isa, self.requires, providers, broken), **changed)


def function(entry: str) -> Callable[..., Any]:
    """What `package:name` names."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def stop(provider: Any) -> None:
    """As the microkernel does."""
    if hasattr(provider, "stop"):
        provider.stop()


@contextmanager
def running(subject: Subject, **how: Any) -> Iterator[Any]:
    """Its provider while the block runs."""
    provider = subject.start(**how)
    try:
        yield provider
    finally:
        stop(provider)
