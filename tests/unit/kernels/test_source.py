"""The pack's generated source: only what is bound, in an order of its own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pih_runtime.errors import BuildError
from pih_steps import kernels
from pih_steps.spec import Spec

BINDINGS = [
    {"symbol": "b_n1", "template": "b", "source": "b.h", "constants": {"n": 1}},
    {"symbol": "a_n2_k3", "template": "a", "source": "b.h", "constants": {"n": 2, "k": 3}},
    {"symbol": "c_e3212836864", "template": "c", "source": "a.h", "constants": {"e": 0xBF800000}},
]


def test_each_source_once_each_symbol_once_sorted():
    assert kernels.source("x86-64-v3", BINDINGS).splitlines() == [
        '#include "pack.h"',
        '#include "a.h"',
        '#include "b.h"',
        'PIH_PACK("x86-64-v3")',
        "PIH_KERNEL(a_n2_k3, a<2, 3>)",
        "PIH_KERNEL(b_n1, b<1>)",
        "PIH_KERNEL(c_e3212836864, c<3212836864u>)",
    ]


def test_order_and_repetition_of_bindings_do_not_matter():
    texts = {kernels.source("x86-64-v3", [*some, some[0]]) for some in itertools.permutations(BINDINGS)}
    assert len(texts) == 1


def test_constants_come_in_the_symbols_order_whatever_the_order_of_keys():
    constants = {"n": 2, "kv_heads": 3, "kv": 1, "k": 5}
    item = {"symbol": "a_n2_kv_heads3_kv1_k5", "template": "a", "constants": dict(sorted(constants.items()))}
    assert kernels.constants_of(item) == [2, 3, 1, 5]


def test_symbol_that_does_not_spell_its_constants_is_refused():
    item = {"symbol": "a_n2", "template": "a", "constants": {"n": 3}}
    with pytest.raises(BuildError, match="'a_n2' does not spell its constants"):
        kernels.constants_of(item)


def spec(tmp_path, **changes):
    params = {"isa": "x86-64-v3", "bindings": BINDINGS} | changes
    wheel = tmp_path / "ziglang.whl"
    wheel.write_bytes(b"not a zip")
    return Spec(params, {"ziglang": wheel}, {}, {}, (), tmp_path / "pack.so")


def test_unknown_isa_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(BuildError, match="no kernels for ISA 'pdp-11'") as caught:
        kernels.run(spec(tmp_path, isa="pdp-11"))
    assert "x86-64-v3, x86-64-v4-bf16-vnni" in str(caught.value)


def test_broken_wheel_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    Path(tmp_path / "t").mkdir()
    with pytest.raises(BuildError, match="not a ziglang wheel"):
        kernels.run(spec(tmp_path))
    assert not list((tmp_path / "t").iterdir())
    assert not (tmp_path / "pack.so").exists()
