"""Plugins to start from, one for each kind. Each passes the suite as it is written.

A backend is a template filled in: its files end in `.in`, and `package/` becomes the plugin's package. All others start
as copies of a plugin that there is, under another name.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from pih import VERSION
from pih_runtime.abi import ABI
from pih_runtime.errors import UsageError

# What each starts from; '' for the template.
_FROM = {
    "backend": "",
    "execution": "plugins/execution/continuous",
    "health": "plugins/health/probe",
    "kernels": "plugins/kernels/cpu",
    "memory": "plugins/memory/paged",
    "model": "plugins/model/llama",
    "platform": "plugins/platform/linux",
    "storage": "plugins/storage/safetensors",
    "surface": "plugins/surface/openai",
    "transport": "examples/npu/transport",
}
KINDS = tuple(_FROM)
_NAME = r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?"
_TEMPLATES = Path(__file__).parent / "templates"


def write(kind: str, name: str, folder: Path, root: Path) -> None:
    """A new plugin of a kind in a new folder; raises UsageError where the name or the folder cannot be used.

    root: the source tree. The folder is there when all of it is; raises OSError naming it where it cannot be written.
    """
    if not re.fullmatch(_NAME, name):
        raise UsageError(f"{name!r} cannot be a plugin's name", fix="small letters, digits and '-', e.g. my-npu")
    if (root / "plugins" / kind / name).exists():
        raise UsageError(f"{kind}/{name} is a plugin of PIH's own", fix=f"choose another name, e.g. my-{name}")
    if folder.exists():
        raise UsageError(f"{folder} exists already", fix="choose another --output, or remove it")
    pih = f">={VERSION.rpartition('.')[0]},<{_next(VERSION)}"
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        beside.mkdir(parents=True)
        if _FROM[kind]:
            _copy(root / _FROM[kind], kind, name, beside, pih, root)
        else:
            _fill(kind, name, beside, pih)
        beside.rename(folder)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), str(folder)) from problem
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _copy(source: Path, kind: str, name: str, folder: Path, pih: str, root: Path) -> None:
    """The plugin with another id, package and version matrix; what its sources say of themselves goes along."""
    text = (source / "plugin.toml").read_text("utf-8")
    identity = re.search(r'(?m)^id = "(.*)"$', text)
    assert identity is not None, source
    package = f"pih_{kind}_{name.replace('-', '_')}"
    words = {f'"{identity[1]}"': f'"{kind}/{name}"'}
    if kind == "kernels":
        shutil.copytree(root / identity[1], folder / "kernels")
    else:
        (own,) = (path.parent.name for path in source.glob("*/__init__.py"))
        words |= {own: package, identity[1]: f"{kind}/{name}"}
        for path in sorted((source / own).rglob("*.py")):
            _written(folder / package / path.relative_to(source / own), path.read_text("utf-8"), words)
    text = re.sub(r'(?m)^version = ".*"$', 'version = "0.1.0"', text, count=1)
    text = re.sub(r'(?m)^licence = ".*"$', 'licence = "NOASSERTION"', text, count=1)
    text = re.sub(r"(?ms)^(# The version matrix[^\n]*\n)?\[\[tested\]\]\n([a-z]+ = [^\n]*\n)+", "", text).rstrip()
    tested = f'\n\n[[tested]]\nversion = "0.1.0"\npih = "{pih}"\nabi = {ABI}\n'
    _written(folder / "plugin.toml", text + tested, words)


def _fill(kind: str, name: str, folder: Path, pih: str) -> None:
    package = f"pih_{kind}_{name.replace('-', '_')}"
    words = {
        "@NAME@": name,
        "@ID@": f"{kind}/{name}",
        "@PACKAGE@": package,
        "@ABI@": str(ABI),
        "@PIH@": pih,
    }
    template = _TEMPLATES / kind
    for path in sorted(template.rglob("*.in")):
        inner = path.relative_to(template).with_suffix("").as_posix().replace("package/", f"{package}/")
        text = path.read_text("utf-8")
        _written(folder / inner, text, words)


def _written(target: Path, text: str, words: Mapping[str, str]) -> None:
    for mark, word in words.items():
        text = text.replace(mark, word)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, "utf-8")


def _next(version: str) -> str:
    major, minor = version.split(".")[:2]
    return f"{major}.{int(minor) + 1}"
