"""Steps `imports`, `wheels` and `app`: what of wheels and packages gets into the image."""

from __future__ import annotations

import json
import marshal
import zipfile

import pytest

from pih_runtime.canonical import sealed
from pih_runtime.errors import BuildError
from pih_steps import app, elf, imports, wheels
from tests.unit.steps import elf_file

SERVER = {
    "server/__init__.py": "",
    "server/core.py": 'import asyncio, server.speed\nLOOPS = ["server.loop:run"]\n',
    "server/loop.py": "import selectors\n",
    "server/reload.py": "import watchfiles\n",
    "server/testing.py": "import unittest\n",
    "server/speed.abi3.so": elf_file.library("libstdc++.so.6", tail=b"debug" * 50),
    "server/py.typed": "",
    "server-1.0.dist-info/METADATA": "Name: server\n",
    "server-1.0.dist-info/RECORD": "",
    "server-1.0.dist-info/licenses/LICENSE": "free\n",
}


@pytest.fixture
def packages(tmp_path):
    package = tmp_path / "source" / "surface"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import json\nfrom server.core import LOOPS\n")
    (package / "deep").mkdir()
    (package / "deep" / "__init__.py").write_text("from .. import LOOPS\n")
    (package / "__pycache__").mkdir()
    (tmp_path / "lock.json").write_text(json.dumps(sealed({"schema": 1})))
    runtime = tmp_path / "source" / "pih_runtime"
    runtime.mkdir()
    (runtime / "__init__.py").write_text("")
    (runtime / "launcher.py").write_text("import never\n")
    trees = {"plugins/surface": package, "runtime": runtime}
    return {
        "params": {"packages": {"plugins/surface": "surface/http", "runtime": "pih"}},
        "trees": {**trees, "lock": tmp_path / "lock.json"},
    }


@pytest.fixture
def needed(make_spec, make_wheel, packages, tmp_path):
    wheel = make_wheel("server", SERVER)
    imports.run(make_spec(artifacts={"server": wheel}, output=tmp_path / "imports", **packages))
    return wheel, tmp_path / "imports"


def test_imports_lists_what_can_be_reached_and_why(needed):
    lists = json.loads(needed[1].read_bytes())
    assert lists["wheels"] == {
        "server": {
            "server": "imported by surface",
            "server.core": "imported by surface",
            "server.loop": "imported by server.core",
            "server.speed": "imported by server.core",
        }
    }
    assert lists["stdlib"] == {
        "asyncio": "imported by server.core",
        "json": "imported by surface",
        "selectors": "imported by server.loop",
    }
    assert lists["libraries"] == {"libstdc++.so.6": "needed by server.speed"}


def test_wheels_has_the_reached_modules_compiled_and_the_papers(needed, make_spec, read_layer, tmp_path):
    wheel, reached = needed
    wheels.run(make_spec(artifacts={"server": wheel}, steps={"imports": reached}))
    entries, lines = read_layer(tmp_path / "out")
    assert {path for path, content in entries.items() if content is not None} == {
        "pih/lib/server/__init__.pyc",
        "pih/lib/server/core.pyc",
        "pih/lib/server/loop.pyc",
        "pih/lib/server/speed.abi3.so",
        "pih/lib/server-1.0.dist-info/METADATA",
        "pih/lib/server-1.0.dist-info/licenses/LICENSE",
    }
    assert marshal.loads(entries["pih/lib/server/loop.pyc"][16:]).co_filename == "/pih/lib/server/loop.py"
    assert entries["pih/lib/server/speed.abi3.so"] == elf.strip(SERVER["server/speed.abi3.so"], "speed")
    assert lines["/pih/lib/server/loop.pyc"]["component"] == "server"
    assert lines["/pih/lib/server/loop.pyc"]["reason"] == "imported by server.core"


LIBRARY = "server/lib/libfast.so.2"


@pytest.fixture
def opened(make_spec, make_wheel, packages, tmp_path):
    made = elf_file.library("libm.so.6", tail=b"debug" * 50)
    wheel = make_wheel("server", {**SERVER, LIBRARY: made, "server/lib/libslow.so.2": made})
    packages["params"]["libraries"] = {LIBRARY: "transport/fast"}
    imports.run(make_spec(artifacts={"server": wheel}, output=tmp_path / "imports", **packages))
    return wheel, tmp_path / "imports"


def test_a_library_that_a_plugin_opens_is_in_with_what_it_needs_and_no_other(opened, make_spec, read_layer, tmp_path):
    wheel, reached = opened
    lists = json.loads(reached.read_bytes())
    assert lists["opened"] == {"server": {LIBRARY: "opened by transport/fast"}}
    assert lists["libraries"]["libm.so.6"] == f"needed by {LIBRARY}"
    wheels.run(make_spec(artifacts={"server": wheel}, steps={"imports": reached}))
    entries, lines = read_layer(tmp_path / "out")
    assert [path for path in entries if "/lib/lib" in path] == [f"pih/lib/{LIBRARY}"]
    assert entries[f"pih/lib/{LIBRARY}"] == elf.strip(elf_file.library("libm.so.6", tail=b"debug" * 50), "fast")
    assert (
        lines[f"/pih/lib/{LIBRARY}"] | {"component": "server", "reason": "opened by transport/fast"}
        == (lines[f"/pih/lib/{LIBRARY}"])
    )


def test_a_library_that_no_wheel_has_is_refused(make_spec, make_wheel, packages, tmp_path):
    packages["params"]["libraries"] = {LIBRARY: "transport/fast"}
    with pytest.raises(BuildError, match=f"transport/fast: no wheel of the bundle has {LIBRARY}"):
        imports.run(make_spec(artifacts={"server": make_wheel("server", SERVER)}, **packages))


def test_app_has_packages_lock_and_launcher(packages, make_spec, read_layer, tmp_path):
    app.run(make_spec(**packages))
    entries, lines = read_layer(tmp_path / "out")
    assert {path for path, content in entries.items() if content is not None} == {
        "pih/lib/pih_runtime/__init__.pyc",
        "pih/lib/surface/__init__.pyc",
        "pih/lib/surface/deep/__init__.pyc",
        "pih/lock.json",
        "usr/bin/pih-worker",
    }
    assert entries["pih/lock.json"] == (tmp_path / "lock.json").read_bytes()
    assert entries["usr/bin/pih-worker"] == b"#!/usr/bin/python3 -IB\nimport never\n"
    assert lines["/pih/lib/surface/deep/__init__.pyc"]["component"] == "surface/http"


def test_without_the_runtime_there_is_no_launcher(packages, make_spec):
    del packages["params"]["packages"]["runtime"]
    with pytest.raises(BuildError, match=r"no package has the module pih_runtime\.launcher"):
        app.run(make_spec(**packages))


def test_a_package_of_no_python_is_named(make_spec, packages, tmp_path):
    (tmp_path / "source" / "surface" / "__init__.py").unlink()
    with pytest.raises(BuildError, match="surface: not a Python package"):
        app.run(make_spec(**packages))


def test_two_packages_with_one_module_are_refused(make_spec, packages, tmp_path):
    other = tmp_path / "other" / "surface"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    packages["params"]["packages"]["plugins/twin"] = "surface/twin"
    packages["trees"]["plugins/twin"] = other
    with pytest.raises(BuildError, match="module surface is in surface/twin and in surface/http"):
        app.run(make_spec(**packages))


@pytest.mark.parametrize("name", ["../outside.py", "/etc/passwd", "a/../../b.py", "a\\b.py"])
def test_a_wheel_whose_paths_leave_it_is_refused(make_wheel, name):
    with pytest.raises(BuildError, match=r"bad-1\.0.*leaves the root"):
        wheels.read(make_wheel("bad", {name: ""}))


def test_a_wheel_that_unpacks_too_far_is_refused(make_wheel, monkeypatch):
    monkeypatch.setattr(wheels, "MAX_UNPACKED", 100)
    with pytest.raises(BuildError, match="unpacks to more than 100 bytes"):
        wheels.read(make_wheel("big", {"zeros": bytes(101)}))


def test_what_is_no_wheel_is_a_build_error(tmp_path, make_wheel):
    (tmp_path / "text.whl").write_text("not a zip file")
    with pytest.raises(BuildError, match=r"text\.whl: not a wheel"):
        wheels.read(tmp_path / "text.whl")
    whole = make_wheel("cut", {"a.py": "x = 1\n" * 100}).read_bytes()
    (tmp_path / "cut.whl").write_bytes(whole.replace(b"x = 1", b"x = 2", 1))
    with pytest.raises(BuildError, match=r"cut\.whl: not a wheel.*CRC"):
        wheels.read(tmp_path / "cut.whl")
    assert zipfile.is_zipfile(tmp_path / "cut.whl")
