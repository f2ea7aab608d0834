"""Bindings of the CUDA pack as the resolver writes them, and their numbers."""

from __future__ import annotations

import struct
import tomllib

from tests.support.program import ROOT

MANIFEST = ROOT / "plugins/kernels/cuda/plugin.toml"
REPORT = tomllib.loads(MANIFEST.read_text())["report"]
_TEMPLATES = {item["template"]: item for item in [*REPORT["kernel"], *REPORT["fused"]]}
TEMPLATES = sorted(_TEMPLATES)


def bits(value):
    """A float32's bits, as constants carry it."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def symbol(template, **constants):
    """The symbol of a binding."""
    named = [name.rpartition(".")[2] for name in _TEMPLATES[template]["constants"]]
    assert sorted(named) == sorted(constants), f"{template} takes {named}"
    return "_".join([template, *(f"{name}{constants[name]}" for name in named)])


def binding(template, **constants):
    """An entry of a lock's `bindings`, as far as the compile step reads it."""
    return {
        "template": template,
        "source": _TEMPLATES[template]["source"],
        "constants": constants,
        "symbol": symbol(template, **constants),
    }
