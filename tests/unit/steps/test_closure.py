"""The import closure: what counts as reached, what is decided, what is cut."""

from __future__ import annotations

import ast

import pytest

from pih_runtime.errors import BuildError
from pih_steps import closure
from pih_steps.closure import Module


def _module(text, *, package=False):
    return Module("here.py", text.encode(), package)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a.b.c", {"a", "a.b", "a.b.c"}),
        ("from a.b import c, d", {"a", "a.b", "a.b.c", "a.b.d"}),
        ("from a import *", {"a"}),
        ("from . import x", {"p", "p.q", "p.q.x"}),
        ("from ..r import x", {"p", "p.r", "p.r.x"}),
        ("def f():\n  import late", {"late"}),
        ("try:\n  import fast\nexcept ImportError:\n  import slow", {"fast", "slow"}),
        ("if a:\n  import x\nelif b:\n  import y\nelse:\n  import z", {"x", "y", "z"}),
    ],
)
def test_imports_anywhere_count(text, names):
    assert closure.imports("p.q.module", _module(text)) == names


def test_relative_imports_of_a_package_start_at_itself():
    assert closure.imports("p.q", _module("from . import x", package=True)) == {"p", "p.q", "p.q.x"}


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        ("TYPE_CHECKING", False),
        ("typing.TYPE_CHECKING", False),
        ("not TYPE_CHECKING", True),
        ("__name__ == '__main__'", False),
        ("sys.platform == 'win32'", False),
        ("sys.platform != 'win32'", True),
        ("os.name == 'posix'", True),
        ("sys.version_info >= (3, 11)", True),
        ("sys.version_info < (3, 12)", True),
        ("sys.version_info >= (3, 13)", False),
        ("sys.version_info >= (3, 11, 4)", None),
        ("sys.version_info >= version", None),
        ("x == 'y'", None),
        ("a or TYPE_CHECKING", None),
    ],
)
def test_conditions_that_hold_in_every_bundle_are_decided(condition, known):
    assert closure.decide(ast.parse(condition, mode="eval").body) is known
    text = f"if {condition}:\n  import yes\nelse:\n  import no"
    expected = {True: {"yes"}, False: {"no"}, None: {"yes", "no"}}[known]
    assert closure.imports("m", _module(text)) == expected


def test_a_decided_condition_below_another_is_decided_too():
    text = "if x:\n  import a\nelif TYPE_CHECKING:\n  import b\nelse:\n  import c"
    assert closure.imports("m", _module(text)) == {"a", "c"}


def test_close_gives_each_name_its_first_importer_and_keeps_to_the_cuts():
    modules = {
        "app": _module("import one, two"),
        "one": _module("import three.part"),
        "two": _module("import three, tests.deep"),
        "three": _module("import tests"),
    }
    cuts = {("three", "tests"): "a module's test of itself", ("*", "tests.deep"): "the same"}
    reached = closure.close({"app": "the application"}, modules.get, closure.imports, cuts)
    assert reached == {
        "app": "the application",
        "one": "imported by app",
        "two": "imported by app",
        "three": "imported by one",
        "three.part": "imported by one",
        "tests": "imported by two",
    }


def test_strings_that_name_modules_are_found():
    text = 'LOOP = "server.loops:auto"\nMORE = ["server.http", "text with spaces", "word", "1.5", "a..b"]'
    assert closure.dotted_strings(_module(text)) == {"server.loops", "server.http"}


def test_a_module_that_needs_an_absent_package_is_not_loadable_nor_who_needs_it():
    modules = {
        "web": _module("", package=True),
        "web.fast": _module("import absent"),
        "web.faster": _module("from web.fast import x"),
        "web.plain": _module("import sys\ntry:\n  import absent\nexcept ImportError:\n  absent = None"),
        "web.late": _module("def f():\n  import absent"),
    }
    assert set(closure.loadable(modules, {"sys"})) == {"web", "web.plain", "web.late"}


def test_a_syntax_error_names_the_file():
    with pytest.raises(BuildError, match=r"here\.py: not Python 3\.11"):
        closure.imports("m", _module("def :"))
