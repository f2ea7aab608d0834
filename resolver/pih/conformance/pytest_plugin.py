"""The suite in pytest: one test for each check of each plugin.

    python -m pytest -p pih.conformance.pytest_plugin --pih-plugin my-npu

`--pih-python` names the interpreter that has the plugin's wheels. Where no file is named, nothing else is collected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pih.build import fetch, store
from pih.conformance import suite
from pih.conformance.process import Check

_ROOT = Path(__file__).resolve().parents[3]


class NotConformingError(Exception):
    """A check that failed; pytest shows its words alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugins to try, and with which interpreter."""
    group = parser.getgroup("pih", "PIH conformance")
    group.addoption("--pih-plugin", action="append", default=[], metavar="FOLDER", help="A plugin's folder to try.")
    group.addoption("--pih-python", default=sys.executable, metavar="FILE", help="It has the plugin's wheels.")


def pytest_configure(config: pytest.Config) -> None:
    """Whoever names a plugin and no file asks for the plugin's checks, not for every test below this folder."""
    if config.getoption("--pih-plugin") and config.args_source is pytest.Config.ArgsSource.INVOCATION_DIR:
        config.args = []


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks to what else is collected."""
    for folder in config.getoption("--pih-plugin"):
        items.extend(_Plugin.from_parent(session, name=Path(folder).name, path=Path(folder).resolve()).collect())


class _Plugin(pytest.Collector):
    """A plugin's folder: its checks are made while they are collected, each then is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        bring = fetch.one(
            store.open_store(store.default_root(os.environ)),
            lock_folder=Path.cwd(),
            environment=os.environ,
            offline=False,
            listener=lambda _event: None,
        )
        for made in suite.check(self.path, _ROOT, bring, self.config.getoption("--pih-python")):
            yield _Check.from_parent(self, name=made.name, made=made)


class _Check(pytest.Item):
    """One finding."""

    def __init__(self, *, made: Check, **rest: Any) -> None:
        super().__init__(**rest)
        self._made = made

    def runtest(self) -> None:
        if self._made.outcome == "skipped":
            pytest.skip(self._made.detail)
        if self._made.outcome == "failed":
            raise NotConformingError(self._made.detail)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotConformingError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"
