"""Plugins to start from: `pih plugin new` fills these templates in. Each passes the suite as it is written.

A template's files end in `.in`, and `package/` becomes the plugin's package.
A kernel pack starts as a copy of PIH's own.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pih import VERSION
from pih_runtime.contracts import ABI
from pih_runtime.errors import UsageError

KINDS = ("backend", "kernels")
_NAME = r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?"
_PACK = "kernels/cpu"
_TEMPLATES = Path(__file__).parent / "templates"


def write(kind: str, name: str, folder: Path, root: Path) -> None:
    """A new plugin of a kind in a new folder; raises UsageError where the name or the folder cannot be used.

    root: the source tree.
    """
    if not re.fullmatch(_NAME, name):
        raise UsageError(f"{name!r} cannot be a plugin's name", fix="small letters, digits and '-', e.g. my-npu")
    if folder.exists():
        raise UsageError(f"{folder} exists already", fix="choose another --output, or remove it")
    pih = f">={VERSION.rpartition('.')[0]},<{_next(VERSION)}"
    if kind == "kernels":
        _copy_pack(name, folder, root, pih)
    else:
        _fill(kind, name, folder, pih)


def _copy_pack(name: str, folder: Path, root: Path, pih: str) -> None:
    text = (root / "plugins" / _PACK / "plugin.toml").read_text("utf-8")
    shutil.copytree(root / _PACK, folder / "kernels")
    tested = f'\n[[tested]]\nversion = "0.1.0"\npih = "{pih}"\nabi = {ABI}\n'
    text = re.sub(r'(?m)^version = ".*"$', 'version = "0.1.0"', text, count=1)
    (folder / "plugin.toml").write_text(text.replace(f'id = "{_PACK}"', f'id = "kernels/{name}"', 1) + tested, "utf-8")


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
        for mark, word in words.items():
            text = text.replace(mark, word)
        target = folder / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


def _next(version: str) -> str:
    major, minor = version.split(".")[:2]
    return f"{major}.{int(minor) + 1}"
