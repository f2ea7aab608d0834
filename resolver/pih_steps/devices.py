"""Families of devices, by the names that the Container Device Interface gives them (vendor/class), as a plugin asks.

https://github.com/cncf-tags/container-device-interface. An engine knows such a name and brings the driver's part into
the container; where there is none, a worker is given what is written here, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Where a driver's libraries are put in a root that is not an engine's; also where some Kubernetes nodes mount them.
FOLDER = "/usr/local/nvidia/lib64"


@dataclass(frozen=True, slots=True)
class Family:
    """nodes: patterns, of which a host has some. libraries: of the driver, by the names that a loader finds them by.

    version: a file of a host with its driver's version, and a pattern that finds it there.
    unknown: what to do where an engine does not know the family's name.
    environment: what the image says, so that a runtime brings no more than is used, and the loader finds it.
    """

    nodes: tuple[str, ...]
    libraries: tuple[str, ...]
    environment: tuple[str, ...]
    version: tuple[str, str]
    unknown: str


# Which of the host's devices a container gets is for its operator to say: the image sets no NVIDIA_VISIBLE_DEVICES.
# Runtimes put the driver's libraries where the host has them: Debian's folder is searched anyway, others are named.
FAMILIES = {
    "nvidia.com/gpu": Family(
        nodes=("/dev/nvidia*",),
        libraries=("libcuda.so.1",),
        environment=("NVIDIA_DRIVER_CAPABILITIES=compute", f"LD_LIBRARY_PATH={FOLDER}:/usr/lib64"),
        # '… NVIDIA UNIX x86_64 Kernel Module  580.65.06  …', or '… Open Kernel Module for x86_64  580.65.06  …'
        version=("/proc/driver/nvidia/version", r"Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)\s"),
        unknown="describe the host's GPUs to container engines, as root, with the NVIDIA Container Toolkit: "
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    )
}


def places(asked: Iterable[str]) -> tuple[str, ...]:
    """Where in its root a worker that asks for these devices finds the driver's libraries."""
    found = sorted(set(asked) & FAMILIES.keys())
    return tuple(f"{FOLDER}/{library}" for name in found for library in FAMILIES[name].libraries)


def environment(asked: Iterable[str]) -> tuple[str, ...]:
    """What the image of a worker that asks for these devices says, beside what every image does."""
    found = (setting for name in sorted(set(asked)) if name in FAMILIES for setting in FAMILIES[name].environment)
    return tuple(dict.fromkeys(found))
