"""`native` becomes an explicit instruction set, or is refused."""

from pathlib import Path

import pytest

from pih import profile
from pih.resolve.target import target_of
from pih_runtime.errors import ResolutionError
from pih_runtime.isa import ISA_FLAGS

TEXT = (Path(__file__).parents[1] / "profile" / "example.toml").read_text()
NATIVE = profile.parse(TEXT.replace("x86-64-v3", "native").encode(), Path("x.toml"))


def cpu(tmp_path, flags):
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor : 0\nflags : {' '.join(sorted(flags))}\n")
    return path


@pytest.mark.parametrize("isa", ISA_FLAGS)
def test_native_is_the_best_that_the_host_has(tmp_path, isa):
    assert target_of(NATIVE, cpu(tmp_path, ISA_FLAGS[isa] | {"fpu"})).isa == isa


def test_native_on_a_host_without_any():
    with pytest.raises(ResolutionError) as caught:
        target_of(NATIVE, Path("/nowhere"))
    assert str(caught.value) == (
        'Because target.isa = "native",\n  and this host has none of x86-64-v3, x86-64-v4-bf16-vnni.\n'
        "  So no kernel pack fits this host.\n"
        '  to fix: name the instruction set of the machine that will run it, e.g. target.isa = "x86-64-v3"'
    )


def test_a_named_instruction_set_does_not_look_at_the_host():
    target = target_of(profile.parse(TEXT.encode(), Path("x.toml")), Path("/nowhere"))
    assert (target.isa, target.memory_bytes) == ("x86-64-v3", 512 << 20)
