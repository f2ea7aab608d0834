"""Compiled modules: importable without sources, and the same bytes whatever the process did before."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import marshal
import subprocess
import sys
import types

import pytest

from pih_runtime.errors import BuildError
from pih_steps import pyc

SOURCE = b'''
"""docstring"""
x = "{"
y = ("name", 1.5, 10**20, b"bytes", 2j, ..., None, True)
def function(a, *, b="\xc3\xa9", **c):
    """docstring"""
    assert a
    return a in {"p", "q", "r"}, f"{a}-{b}", lambda: x
class Name:
    field: int = 3
'''


def test_a_compiled_module_imports_without_its_source(tmp_path):
    path = tmp_path / "module.pyc"
    path.write_bytes(pyc.compile_module(SOURCE, "/lib/module.py"))
    loader = importlib.machinery.SourcelessFileLoader("module", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("module", loader))
    loader.exec_module(module)
    assert module.y[2] == 10**20
    assert module.function("q")[:2] == (True, "q-é")
    assert module.function.__doc__ is None
    assert module.function.__code__.co_filename == "/lib/module.py"


def test_it_is_an_unchecked_hash_file():
    data = pyc.compile_module(SOURCE, "m.py")
    assert data[4:8] == b"\x01\0\0\0"
    assert data[8:16] == importlib.util.source_hash(SOURCE)


@pytest.mark.parametrize("module", [types, marshal, pytest, importlib.util])
def test_the_code_is_the_compiler_s(module):
    path = getattr(module, "__file__", None) or importlib.util.__file__
    with open(path, "rb") as stream:  # noqa: PTH123 - the path is Python's own
        source = stream.read()
    expected = compile(source, path, "exec", dont_inherit=True, optimize=2)
    assert marshal.loads(pyc.compile_module(source, path)[16:]) == expected


def test_what_the_process_did_before_does_not_show():
    here = pyc.compile_module(SOURCE, "m.py")
    program = (
        "import sys, json, ast, typing; sys.path[:0] = sys.argv[1:3]\n"
        "keep = [sys.intern(s) for s in ('{', 'p', 'q', 'function', 'field', '\\xe9', '', 'name')]\n"
        "from pih_steps import pyc\n"
        "sys.stdout.buffer.write(pyc.compile_module(sys.stdin.buffer.read(), 'm.py'))"
    )
    folders = [
        str(importlib.util.find_spec(name).submodule_search_locations[0]) for name in ("pih_steps", "pih_runtime")
    ]
    parents = [folder.rpartition("/")[0] for folder in folders]
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", program, *parents],
            input=SOURCE,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        assert there.stdout == here


def test_a_syntax_error_names_the_file():
    with pytest.raises(BuildError, match=r"lib/broken\.py: cannot be compiled"):
        pyc.compile_module(b"def :", "lib/broken.py")
