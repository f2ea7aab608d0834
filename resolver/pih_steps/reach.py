"""Paths of the host that a worker may be let in to, and those that would hide what the image has itself."""

from __future__ import annotations

from fnmatch import fnmatchcase

# Every sandbox has these of its own; the bundle's own files need no permission.
GIVEN = ("/proc", "/sys/fs/cgroup", "/tmp", "/pih")  # noqa: S108 - inside the sandbox
# What every image has, whichever plugins are in it; `hides` holds for the folders above too.
ALWAYS = (
    "/bin",
    "/etc/group",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/lib",
    "/lib64",
    "/usr/bin",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib64",
    "/usr/share",
    "/var/lib",
)


def given(path: str) -> bool:
    """Whether every worker has this path, so that nothing of the host needs to be let in."""
    return any(path == given or path.startswith(given + "/") for given in GIVEN)


def hides(pattern: str, path: str) -> bool:
    """Whether what is asked for is this path of the image, or a folder above it."""
    asked, has = pattern.split("/"), path.split("/")
    return len(asked) <= len(has) and all(map(fnmatchcase, has, asked))
