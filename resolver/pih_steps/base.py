"""Step `base`: Debian packages to the smallest userland that runs the application, as one layer.

Inputs: the .debs as artifacts, step `imports`. Kept is what the static closure over the standard library
reaches, the shared libraries that follow from it, and what package scanners and licences ask for.
docs/decisions/0001-base-userland.md says why; `stdlib.py` lists what is cut and added by hand.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from pih_runtime.errors import BuildError
from pih_steps import closure, deb, elf, layer, pyc, stdlib, tar
from pih_steps.closure import Module
from pih_steps.spec import Spec, step

DEBIAN = "12"
MULTIARCH = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
PYTHON = f"python{closure.PYTHON[0]}.{closure.PYTHON[1]}"
STDLIB = f"usr/lib/{PYTHON}"
DYNLOAD = f"{STDLIB}/lib-dynload"
# Folders that container engines mount on, and the one that separate weights are mounted on.
FOLDERS = (("dev", 0o755), ("pih/weights", 0o755), ("proc", 0o755), ("sys", 0o755), ("tmp", 0o1777), (DYNLOAD, 0o755))
USER = 65532
_ETC = {
    "passwd": (
        f"root:x:0:0:root:/:/usr/sbin/nologin\npih:x:{USER}:{USER}:pih:/:/usr/sbin/nologin\n",
        "names of the user ids in the image",
    ),
    "group": (f"root:x:0:\npih:x:{USER}:\n", "names of the group ids in the image"),
    "hosts": ("127.0.0.1 localhost\n::1 localhost\n", "localhost, where no engine brings its own"),
    "nsswitch.conf": ("passwd: files\ngroup: files\nhosts: files dns\n", "order in which libc looks up names"),
    "os-release": (
        f'PRETTY_NAME="PIH bundle (packages of Debian {DEBIAN})"\nID=debian\nVERSION_ID="{DEBIAN}"\n',
        "tells package scanners whose packages these are",
    ),
}


@dataclass(frozen=True, slots=True)
class _Owned:
    """A member of a package, at its place after the merge of /lib into /usr/lib."""

    package: str
    member: deb.Member


def run(spec: Spec) -> None:
    """Write the layer."""
    packages = {package.control["Package"]: package for package in map(deb.read, spec.artifacts.values())}
    tree = merge(packages)
    needs = json.loads(step(spec, "imports").read_bytes())
    files = [*_python(tree, needs["stdlib"])]
    files += _libraries(tree, files, needs["libraries"], _multiarch(packages))
    files += _loader_links(tree)
    files += _papers(tree, packages, sorted({file.component for file in files}))
    files += [
        layer.File(tar.Entry(f"etc/{name}", text.encode()), "pih", reason) for name, (text, reason) in _ETC.items()
    ]
    files += [
        layer.File(tar.Entry(name, target=f"usr/{name}"), "pih", "merged /usr, as in Debian")
        for name in ("bin", "lib", "lib64")
    ]
    layer.write(spec.output, files, FOLDERS)


def merge(packages: dict[str, deb.Package]) -> dict[str, _Owned]:
    """All members of all packages by path, with /bin, /lib, /lib64 and /sbin merged into /usr."""
    tree: dict[str, _Owned] = {}
    for name, package in sorted(packages.items()):
        for member in package.members:
            path = _merged(member.path)
            if path in tree:
                raise BuildError(f"/{path} is in package {name} and in {tree[path].package}")
            tree[path] = _Owned(name, member)
    return tree


def _merged(path: str) -> str:
    return f"usr/{path}" if path.partition("/")[0] in ("bin", "lib", "lib64", "sbin") else path


def _multiarch(packages: dict[str, deb.Package]) -> str:
    architectures = {package.control["Architecture"] for package in packages.values()} - {"all"}
    if len(architectures) != 1 or not architectures <= MULTIARCH.keys():
        raise BuildError(
            f"the packages are for {', '.join(sorted(architectures)) or 'no architecture'}",
            fix=f"all of one of {', '.join(sorted(MULTIARCH))}",
        )
    return f"usr/lib/{MULTIARCH[architectures.pop()]}"


def _find(tree: dict[str, _Owned], path: str) -> tuple[str, _Owned] | None:
    """What lies at `path`, symbolic links followed; a chain of links may have ten."""
    for _ in range(10):
        owned = tree.get(path)
        if owned is None or not owned.member.target:
            return (path, owned) if owned else None
        path = _follow(path, owned.member.target)
    return None


def _follow(path: str, target: str) -> str:
    return _merged(posixpath.normpath(posixpath.join(posixpath.dirname("/" + path), target)).lstrip("/"))


def _python(tree: dict[str, _Owned], roots: dict[str, str]) -> Iterator[layer.File]:
    """The interpreter and the modules that the application can import."""
    program = _find(tree, f"usr/bin/{PYTHON}")
    if program is None:
        raise BuildError(f"no package has /usr/bin/{PYTHON}", fix="lock the packages of the interpreter")
    owner = program[1].package
    reason = "the interpreter of the worker"
    yield layer.File(tar.Entry(f"usr/bin/{PYTHON}", program[1].member.data, mode=0o755), owner, reason)
    yield layer.File(tar.Entry("usr/bin/python3", target=PYTHON), owner, "the name that the launcher uses")
    extensions = {
        path.removeprefix(f"{DYNLOAD}/").partition(".")[0]: path for path in tree if path.startswith(f"{DYNLOAD}/")
    }

    def place(name: str) -> str | None:
        stem = f"{STDLIB}/{name.replace('.', '/')}"
        return next((path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in tree), extensions.get(name))

    def find(name: str) -> Module | None:
        path = place(name)
        found = _find(tree, path) if path else None
        if path is None or found is None:
            return None
        text = found[1].member.data if path.endswith(".py") else b""
        return Module(f"{found[1].package}:/{path}", text, path.endswith("/__init__.py"))

    for name, why in closure.close({**roots, **stdlib.STARTUP}, find, stdlib.references, stdlib.CUTS).items():
        path = place(name)
        found = _find(tree, path) if path else None
        if path is None or found is None:
            continue
        data = found[1].member.data
        if path.endswith(".py"):
            yield layer.File(tar.Entry(f"{path}c", pyc.compile_module(data, f"/{path}")), found[1].package, why)
        else:
            yield layer.File(tar.Entry(path, data), found[1].package, why)


def _libraries(
    tree: dict[str, _Owned], files: list[layer.File], others: dict[str, str], folder: str
) -> Iterator[layer.File]:
    """Shared libraries that the files, and those in `others` (library → reason), need."""
    programs = {
        file.entry.path: file.entry.content
        for file in files
        if isinstance(file.entry.content, bytes) and elf.is_elf(file.entry.content)
    }

    def find(name: str) -> bytes | None:
        found = _find(tree, f"{folder}/{name}")
        return found[1].member.data if found else None

    reasons, missing = elf.closure(programs, find, others)
    if missing:
        name, by = min(missing.items())
        raise BuildError(f"no package has the library {name}, {by}", fix="lock the package that has it")
    for name, reason in reasons.items():
        path = f"{folder}/{name}"
        while (owned := tree[path]).member.target:
            yield layer.File(tar.Entry(path, target=owned.member.target), owned.package, reason)
            path = _follow(path, owned.member.target)
        yield layer.File(tar.Entry(path, owned.member.data, mode=owned.member.mode), owned.package, reason)


def _loader_links(tree: dict[str, _Owned]) -> Iterator[layer.File]:
    """/lib64/ld-linux-….so: relative, so that an unpacked bundle works where it lies."""
    for path, owned in tree.items():
        if path.startswith("usr/lib64/") and owned.member.target:
            target = posixpath.relpath(_follow(path, owned.member.target), posixpath.dirname(path))
            yield layer.File(tar.Entry(path, target=target), owned.package, "where programs look for their loader")


def _papers(tree: dict[str, _Owned], packages: dict[str, deb.Package], names: list[str]) -> Iterator[layer.File]:
    """For each package with a file in the image: its copyright, and its entry for package scanners."""
    for name in names:
        control = "".join(f"{key}: {value}\n" for key, value in packages[name].control.items())
        status = tar.Entry(f"var/lib/dpkg/status.d/{name}", control.encode())
        yield layer.File(status, name, "tells package scanners name and version")
        found = _find(tree, f"usr/share/doc/{name}/copyright") or _find_linked(tree, name)
        text = found[1].member.data if found else _notice(packages[name].control).encode()
        copyright_file = tar.Entry(f"usr/share/doc/{name}/copyright", text)
        yield layer.File(copyright_file, name, "copyright and licence of the package")


def _find_linked(tree: dict[str, _Owned], name: str) -> tuple[str, _Owned] | None:
    """The copyright of a package whose folder of documents is a link to another package's."""
    folder = tree.get(f"usr/share/doc/{name}")
    if folder is None:
        return None
    return _find(tree, f"{_follow(f'usr/share/doc/{name}', folder.member.target)}/copyright")


def _notice(control: dict[str, str]) -> str:
    """For a package whose copyright file lies in a package that is not part of the image."""
    source = control.get("Source", control["Package"])
    return (
        f"Package {control['Package']} {control['Version']} of Debian, built from the source package {source}.\n"
        f"Its copyright file is part of another binary package of that source.\n"
    ) + stdlib.NOTICES.get(source.partition(" ")[0], "")
