"""Wheels: pip itself is run, with the user's own indexes, mirrors and credentials."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from pih import spdx
from pih.build import command, purl
from pih.build.store import Store
from pih.lock import Artifact
from pih_runtime.errors import FetchError, LockError

PYTHON = "3.11"  # of the bundle; the interpreter's .debs say the same
_GLIBC = 36  # Debian 12 has 2.36
MISSING = "install pip for the Python that runs pih"


def fetch(
    wanted: purl.Purl, artifact: Artifact, folder: Path, environment: Mapping[str, str], advanced: Callable[[int], None]
) -> Path:
    """Download one wheel, chosen by its digest."""
    wheel = purl.qualifier(wanted, "file_name")
    try:
        platforms = sorted({tag.platform for tag in parse_wheel_filename(wheel)[3]})
    except InvalidWheelFilename as problem:
        raise LockError(str(problem), where=artifact.name, fix="write the lock again: pih lock") from problem
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wanted.name}=={wanted.version} --hash=sha256:{artifact.sha256}\n", encoding="utf-8")
    _download(["--require-hashes", "--requirement", str(requirements)], platforms, folder, environment, advanced)
    return command.only_file(folder, ".whl")


def pin_wheel(requirement: str, store: Store, environment: Mapping[str, str], *, arch: str = "x86_64") -> Artifact:
    """The wheel that pip chooses for `requirement`, downloaded into the store. Its reasons are the caller's to add."""
    with store.workspace() as folder:
        _download([requirement], platforms_of(arch), folder, environment, lambda _: None)
        wheel = command.only_file(folder, ".whl")
        name, version, _, _ = parse_wheel_filename(wheel.name)
        size = wheel.stat().st_size
        licence = _licence(wheel)
        digest = store.add_file(wheel)
    purls = (purl.render("pypi", name, str(version), {"file_name": wheel.name}),)
    return Artifact(canonicalize_name(name), str(version), "wheel", digest, size, purls, licence, ())


def platforms_of(arch: str) -> list[str]:
    """The wheel platforms that Debian 12 runs, newest first."""
    old = [f"manylinux2014_{arch}", f"manylinux2010_{arch}", f"manylinux1_{arch}"] if arch == "x86_64" else []
    return [f"manylinux_2_{minor}_{arch}" for minor in range(_GLIBC, 4, -1)] + old + [f"linux_{arch}"]


def _download(
    what: Sequence[str],
    platforms: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    advanced: Callable[[int], None],
) -> None:
    arguments = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    arguments += ["--progress-bar=off", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    arguments += ["--implementation=cp", f"--python-version={PYTHON}", "--abi=cp311", "--abi=abi3", "--abi=none"]
    arguments += [f"--platform={platform}" for platform in platforms]
    command.run("pip", [*arguments, *what], folder, environment, missing=MISSING, advanced=advanced)


def _licence(wheel: Path) -> str:
    """The licence as the wheel's metadata has it, an SPDX expression; NOASSERTION where that does not name just one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
        if len(names) != 1:
            raise FetchError("the wheel has no metadata", where=wheel.name)
        fields = HeaderParser().parsestr(archive.read(names[0]).decode("utf-8", "replace"))
    classifiers = [
        spdx.expression(value.rpartition(" :: ")[2])
        for value in fields.get_all("Classifier") or ()
        if value.startswith("License :: ")
    ]
    said = (spdx.expression(fields.get(key) or "") for key in ("License-Expression", "License"))
    return next((words for words in said if words != spdx.NOASSERTION), spdx.both(classifiers))
