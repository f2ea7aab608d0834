"""The build host's own Python packages, as wheels, so that `./pih` can make its .venv without an index."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pih.build import command, pip
from pih_runtime.errors import FetchError

FILE = "requirements/build.txt"


def versions(asked: Sequence[str]) -> tuple[str, ...]:
    """The Pythons to fetch wheels for, such as 3.11; that of this program where none is asked for."""
    return tuple(dict.fromkeys(asked)) or (f"{sys.version_info.major}.{sys.version_info.minor}",)


def fetch(source_root: Path, folder: Path, python: Sequence[str], environment: Mapping[str, str]) -> list[Path]:
    """Download the hash-pinned wheels for this processor and each of the Pythons; pip checks the hashes."""
    wheels = folder / "wheels"
    wheels.mkdir()
    for version in python:
        work = folder / f"python{version}"
        work.mkdir()
        arguments = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
        arguments += ["--progress-bar=off", "--no-deps", "--only-binary=:all:", "--dest", str(wheels)]
        tag = f"cp{version.replace('.', '')}"
        arguments += ["--implementation=cp", f"--python-version={version}", f"--abi={tag}", "--abi=abi3", "--abi=none"]
        arguments += [f"--platform={name}" for name in pip.platforms_of(platform.machine())]
        arguments += ["--require-hashes", "--requirement", str(source_root / FILE)]
        try:
            command.run("pip", arguments, work, environment, missing=pip.MISSING, advanced=lambda _: None)
        except FetchError as problem:
            raise FetchError(
                f"the requirements of Python {version}: {problem.what}",
                where=FILE,
                fix="see pip's message; --no-wheels leaves them out",
            ) from problem
    return sorted(wheels.glob("*.whl"))
