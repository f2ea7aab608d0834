"""The target machine: `native` made explicit, and which plugins it rules out."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from pih.catalog import Constraint
from pih.lock import Device, Target
from pih.profile import Profile
from pih.resolve.rules import Misfit
from pih.sizes import memory_bytes
from pih.structure import listed
from pih_runtime.errors import ResolutionError
from pih_runtime.isa import ISA_FLAGS, cpu_flags


def target_of(profile: Profile, cpuinfo: Path = Path("/proc/cpuinfo")) -> Target:
    """The profile's target; for `native` the last of the instruction sets that this host has."""
    wanted, device = profile.intent.target, profile.intent.device
    return Target(
        os=wanted.os,
        arch=wanted.arch,
        isa=_host_isa(cpuinfo) if wanted.isa == "native" else wanted.isa,
        threads=wanted.threads,
        memory_bytes=memory_bytes(wanted.memory),
        device=Device(device.count, device.sm, memory_bytes(device.memory), device.driver) if device.count else None,
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


def misfit(wanted: Constraint, target: Target) -> Misfit | None:
    """Why the target rules out a plugin that wants this, with the profile's line that would not."""
    for key, allowed, given in (
        ("os", wanted.os, target.os),
        ("arch", wanted.arch, target.arch),
        ("isa", wanted.isa, target.isa),
    ):
        if allowed and given not in allowed:
            what = f"it is made for {key} {listed(allowed)}, the profile's target.{key} is {given}"
            return Misfit("target", what, f"target.{key} = {_either(allowed)}")
    return _device_misfit(wanted, target.device)


def wants_devices(wanted: Constraint) -> bool:
    """Whether a plugin is made for devices."""
    return bool(wanted.devices or wanted.sm or wanted.device_memory or wanted.driver)


def _device_misfit(wanted: Constraint, device: Device | None) -> Misfit | None:
    needed = [
        *([f"{wanted.devices} or more"] if wanted.devices else []),
        *([f"sm {listed(wanted.sm)}"] if wanted.sm else []),
        *([f"{wanted.device_memory} of memory"] if wanted.device_memory else []),
        *([f"driver {wanted.driver}"] if wanted.driver else []),
    ]
    lines = {
        "count": str(max(wanted.devices, 1)),
        "sm": _either(wanted.sm),
        "memory": f'"{wanted.device_memory}"' if wanted.device_memory else "",
        "driver": f'"{wanted.driver}"' if wanted.driver else "",
    }

    def out(key: str, what: str) -> Misfit:
        return Misfit("target", what, f"device.{key} = {lines[key]}")

    if device is None:
        if not needed:
            return None
        every = ", ".join(f"{key} = {value}" for key, value in lines.items() if value)
        if not lines["memory"]:  # every profile with devices says it, and which GPU it is where a pack asks for that
            every += ", memory of each" + ("" if lines["sm"] else " and, of a GPU, sm")
        return Misfit(
            "target", f"it needs devices ({', '.join(needed)}), the profile has none", f"[device] with {every}"
        )
    if device.count < wanted.devices:
        return out(
            "count", f"it is made for {wanted.devices} devices or more, the profile's device.count is {device.count}"
        )
    if wanted.sm and device.sm not in wanted.sm:
        return out("sm", f"it is made for sm {listed(wanted.sm)}, the profile's device.sm is {device.sm or 'none'}")
    if wanted.device_memory and device.memory_bytes < memory_bytes(wanted.device_memory):
        given = f"{device.memory_bytes / 2**30:g} GiB"
        return out("memory", f"it needs devices of {wanted.device_memory}, the profile's device.memory is {given}")
    needs = f"it needs driver {wanted.driver} or newer, the profile's device.driver"
    if wanted.driver and not device.driver:
        return out("driver", f"{needs} does not say which is there")
    if wanted.driver and Version(device.driver) < Version(wanted.driver):
        return out("driver", f"{needs} is {device.driver}")
    return None


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(f'"{value}"' for value in values)
