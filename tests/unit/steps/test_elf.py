"""ELF: needed libraries, stripping, and files that lie about themselves."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps import elf
from tests.unit.steps import elf_file


def test_needed_libraries_in_their_order():
    assert elf.needed(elf_file.library("libm.so.6", "libc.so.6"), "x") == ["libm.so.6", "libc.so.6"]
    assert elf.needed(elf_file.library(), "x") == []


def test_strip_takes_what_no_segment_covers():
    data = elf_file.library("libc.so.6", tail=b"debug" * 100)
    stripped = elf.strip(data, "x")
    assert len(stripped) == len(data) - 500
    assert elf.needed(stripped, "x") == ["libc.so.6"]
    assert elf.strip(stripped, "x") == stripped


@pytest.mark.skipif(sys.platform != "linux" or sys.maxsize < 2**32, reason="needs 64-bit Linux")
def test_a_stripped_library_still_loads(tmp_path):
    import markupsafe._speedups

    data = Path(markupsafe._speedups.__file__).read_bytes()
    stripped = elf.strip(data, "markupsafe")
    assert len(stripped) < len(data)
    path = tmp_path / f"_speedups{sysconfig.get_config_var('EXT_SUFFIX')}"
    path.write_bytes(stripped)
    assert ctypes.PyDLL(str(path)).PyInit__speedups


def test_closure_follows_libraries_and_names_what_is_missing():
    libraries = {"libb.so": elf_file.library("libc.so.6", "libgone.so"), "libc.so.6": elf_file.library()}
    found, missing = elf.closure(
        {"bin/tool": elf_file.library("libb.so")}, libraries.get, {"libc.so.6": "needed by plugin"}
    )
    assert found == {"libb.so": "needed by /bin/tool", "libc.so.6": "needed by plugin"}
    assert missing == {"libgone.so": "needed by libb.so"}


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(80), b"MZ" + bytes(100)])
def test_what_is_no_64_bit_elf_is_a_build_error(data):
    for look in (elf.needed, elf.strip):
        with pytest.raises(BuildError, match="name: not a shared library"):
            look(data, "name")


_WHOLE = elf_file.library("libm.so.6", "libc.so.6", tail=b"debug")


@settings(deadline=None)
@given(at=st.integers(0, len(_WHOLE) - 1), junk=st.binary(min_size=1, max_size=12), cut=st.integers(1, len(_WHOLE)))
def test_damage_anywhere_gives_an_answer_or_a_build_error(at, junk, cut):
    damaged = (_WHOLE[:at] + junk + _WHOLE[at + len(junk) :])[:cut]
    for look in (elf.needed, elf.strip):
        try:
            look(damaged, "x")
        except BuildError:
            continue
