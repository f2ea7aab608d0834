"""The build steps as they run for real: by the pinned interpreter, on the pinned packages and wheels."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from pih.resolve.artifacts import BASE
from pih_runtime.canonical import sealed
from pih_steps import deb
from tests.support.artifacts import artifact

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = "usr/lib/x86_64-linux-gnu"
WHEELS = ("anyio", "click", "h11", "jinja2", "markupsafe", "starlette", "tokenizers", "typing-extensions", "uvicorn")
LOCK = {
    "pih": "0.1.0",
    "service": {"port": 8000},
    "plugins": [
        {"id": plugin, "provides": {capability: "1.0"}, "permissions": {"devices": []}}
        for plugin, capability in (
            ("model/llama", "model.decoder"),
            ("model/text", "model.text"),
            ("kernels/cpu", "kernels.pack"),
        )
    ],
}


@pytest.fixture(scope="session")
def debs():
    return {name: artifact("deb", name) for name in BASE}


@pytest.fixture(scope="session")
def wheels():
    return {name: artifact("wheel", name) for name in WHEELS}


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A copy of the sources, so that an edit while the tests run does not reach them."""
    copy = tmp_path_factory.mktemp("source")
    for tree in ("resolver/pih_steps", *packages()):
        shutil.copytree(ROOT / tree, copy / tree, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="session")
def interpreter(source, debs, tmp_path_factory):
    """The command that runs the step program by the packages' own Python."""
    root = tmp_path_factory.mktemp("python")
    for package in map(deb.read, debs.values()):
        for member in package.members:
            path = member.path if member.path.startswith("usr/") else f"usr/{member.path}"
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.target:
                target.symlink_to(member.target)
            else:
                target.write_bytes(member.data)
                target.chmod(member.mode)
    libraries = root / LIBRARIES
    loader = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, root / "usr/bin/python3.11"]
    return [*map(str, loader), "-I", "-B", str(source / "resolver" / "pih_steps")]


def packages():
    """Tree of each package that goes into the worker → its component."""
    found = {"runtime/pih_runtime": "pih"}
    for manifest in sorted(ROOT.glob("plugins/*/*/plugin.toml")):
        data = tomllib.loads(manifest.read_text())
        if "torch" not in data["id"] and "runtime" in data:
            folder = manifest.parent.relative_to(ROOT) / data["runtime"]["package"]
            if (ROOT / folder).is_dir():
                found[folder.as_posix()] = data["id"]
    return found


@pytest.fixture(scope="session")
def build(source, interpreter, debs, wheels):
    """A function that runs all steps of a small image into a folder."""

    def run(folder, weights=b"\x01" * 3_000_000, prefix=(), **process):
        (folder / "lock.json").write_text(json.dumps(sealed(LOCK)))
        (folder / "plan").write_text("{}\n")
        (folder / "kernels").write_bytes(b"not really a kernel pack")
        (folder / "model").mkdir()
        (folder / "model" / "tokenizer.json").write_text("{}\n")
        (folder / "weights").write_bytes(weights)
        trees = {name: str(source / name) for name in packages()} | {"lock": str(folder / "lock.json")}
        parts = {"packages": packages()}
        step = functools.partial(_step, [*prefix, *interpreter], folder, process)
        step("imports", params=parts, artifacts=wheels, trees=trees)
        step("wheels", artifacts=wheels, steps=["imports"])
        step("app", params=parts, trees=trees)
        step("base", artifacts=debs, steps=["imports"])
        step("digests", params={"chunk": 1 << 20}, steps=["weights"])
        inputs = ["base", "wheels", "app", "plan", "model", "kernels", "weights", "digests"]
        step("image", params={"name": "tiny", "arch": "x86_64"}, trees=trees, steps=inputs)
        return folder

    return run


def _step(interpreter, folder, process, name, *, params=None, artifacts=None, trees=None, steps=()):
    spec = {
        "params": params or {},
        "artifacts": {key: str(path) for key, path in (artifacts or {}).items()},
        "trees": trees or {},
        "steps": {step: str(folder / step) for step in steps},
        "tools": [],
        "output": str(folder / name),
    }
    path = folder / f"{name}.spec.json"
    path.write_text(json.dumps(spec))
    result = subprocess.run(
        [*interpreter, name, path], capture_output=True, text=True, check=False, **({"env": {}} | process)
    )
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="session")
def built(build, tmp_path_factory):
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def rootfs(built, tmp_path_factory):
    """The image unpacked."""
    folder = tmp_path_factory.mktemp("rootfs")
    layout = built / "image"
    manifest = json.loads((layout / "manifest.json").read_bytes())[0]
    for layer in manifest["Layers"]:
        with tarfile.open(layout / layer) as archive:
            archive.extractall(folder, filter="tar")
    return folder
