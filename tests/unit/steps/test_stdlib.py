"""The lists of edges by hand hold for the Python that they were written for."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from pih_steps import closure, stdlib
from pih_steps.closure import Module

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != closure.PYTHON, reason="the lists are for one version of Python"
)
LIBRARY = Path(sysconfig.get_path("stdlib"))


def _find(name):
    stem = LIBRARY.joinpath(*name.split("."))
    for path in (stem / "__init__.py", stem.with_suffix(".py")):
        if path.is_file():
            return Module(str(path), path.read_bytes(), path.name == "__init__.py")
    return None


@pytest.mark.parametrize(("importer", "imported"), [edge for edge in stdlib.CUTS if edge[0] != "*"])
def test_every_cut_edge_exists(importer, imported):
    module = _find(importer)
    assert module is not None
    assert imported in closure.imports(importer, module)


def test_every_cut_and_start_has_a_reason():
    assert all(stdlib.CUTS.values())
    assert all(stdlib.STARTUP.values())


def test_every_start_exists():
    assert all(_find(name) for name in stdlib.STARTUP)


def test_the_closure_of_a_server_has_no_tests_and_no_tools():
    roots = {"asyncio": "a server", "logging.config": "a server", "zipfile": "a server"} | stdlib.STARTUP
    reached = closure.close(roots, _find, stdlib.references, stdlib.CUTS)
    packages = {name.partition(".")[0] for name in reached}
    assert packages.isdisjoint({"test", "unittest", "doctest", "pdb", "pydoc", "tkinter", "bz2", "lzma", "sqlite3"})
    assert {"ssl", "encodings.idna", "asyncio.unix_events"} <= reached.keys()
