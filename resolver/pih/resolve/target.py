"""The target machine: `native` made explicit, and which plugins it rules out."""

from __future__ import annotations

from pathlib import Path

from pih.catalog import Manifest
from pih.lock import Target
from pih.profile import Profile
from pih.profile_schema import memory_bytes
from pih.structure import listed
from pih_runtime.errors import ResolutionError
from pih_runtime.isa import ISA_FLAGS, cpu_flags


def target_of(profile: Profile, cpuinfo: Path = Path("/proc/cpuinfo")) -> Target:
    """The profile's target; for `native` the last of the instruction sets that this host has."""
    wanted = profile.intent.target
    return Target(
        os=wanted.os,
        arch=wanted.arch,
        isa=_host_isa(cpuinfo) if wanted.isa == "native" else wanted.isa,
        threads=wanted.threads,
        memory_bytes=memory_bytes(wanted.memory),
    )


def _host_isa(cpuinfo: Path) -> str:
    try:
        flags = cpu_flags(cpuinfo.read_text())
    except OSError:
        flags = frozenset()
    fitting = [name for name, needed in ISA_FLAGS.items() if needed <= flags]
    if not fitting:
        raise ResolutionError(
            f'Because target.isa = "native",\n  and this host has none of {", ".join(ISA_FLAGS)}.\n'
            "  So no kernel pack fits this host.",
            fix='name the instruction set of the machine that will run it, e.g. target.isa = "x86-64-v3"',
        )
    return fitting[-1]


def misfit(plugin: Manifest, target: Target) -> str:
    """Why the target rules a plugin out, or ''."""
    wanted = plugin.target
    for key, allowed, given in (
        ("os", wanted.os, target.os),
        ("arch", wanted.arch, target.arch),
        ("isa", wanted.isa, target.isa),
    ):
        if allowed and given not in allowed:
            return f"it is made for {key} {listed(allowed)}, the profile's target.{key} is {given}"
    return ""
