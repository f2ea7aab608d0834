"""`python -I pih_steps NAME SPEC.json [ROOT]`: run one build step. ROOT: of the source tree, where it sees copies.

Nothing of the host is on the path: the program finds itself, the runtime beside it,
and unpacks the tool wheels that the specification names. Exit code 7 and one message
for a failure that its user can understand; a traceback is a defect of the step.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

# Steps must not leave __pycache__ in the source tree: it is a declared input.
sys.dont_write_bytecode = True
_HERE = Path(__file__).resolve().parent
# `python DIR` puts DIR itself on the path, where `tar` or `base` would be top-level names.
sys.path[:] = [str(_HERE.parent), str(_HERE.parent.parent / "runtime")] + [
    entry for entry in sys.path if Path(entry).resolve() != _HERE
]

from pih_runtime.errors import BuildError, PihError, UsageError  # noqa: E402 - the path comes first
from pih_steps import plugins  # noqa: E402
from pih_steps.spec import Spec, check_trees, load, of_the_disk  # noqa: E402

STEPS: dict[str, str] = {
    "app": "pih_steps.app",
    "archive": "pih_steps.archive",
    "base": "pih_steps.base",
    "cubin": "pih_steps.cubin",
    "digests": "pih_steps.digests",
    "image": "pih_steps.image",
    "imports": "pih_steps.imports",
    "kernels": "pih_steps.kernels",
    "model": "pih_steps.model",
    "plan": "pih_steps.plan",
    "weights": "pih_steps.weights",
    "wheels": "pih_steps.wheels",
}


def run(name: str, spec: Spec) -> None:
    """Run the step `name`; its tool wheels are on the path while it runs."""
    if name not in STEPS:
        raise UsageError(f"there is no build step {name!r}", fix=f"one of {', '.join(sorted(STEPS))}")
    with (
        # NFS and FUSE keep what is still mapped under another name: the runner removes that with all the scratch
        tempfile.TemporaryDirectory(prefix="pih-tools-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="pih-plugins-") as outside,
    ):
        for wheel in spec.tools:
            unpack_tool(wheel, Path(folder))
        if plugins.PARAM in spec.params:
            spec = plugins.placed(spec, Path(outside))
        sys.path.insert(0, folder)
        try:
            import_module(STEPS[name]).run(spec)
        finally:
            sys.path.remove(folder)


def unpack_tool(wheel: Path, folder: Path) -> None:
    """Unpack one wheel; zipfile keeps every member below `folder`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(f"not a wheel: {problem}", where=str(wheel), fix="delete it and build again") from problem


def main(arguments: Sequence[str]) -> int:
    """Exit code of the step."""
    try:
        if len(arguments) not in (2, 3):
            raise UsageError("a step takes its name and its specification", fix="python -I pih_steps NAME SPEC.json")
        name, spec, *root = arguments
        declared = load(Path(spec))
        check_trees(declared, Path(root[0]) if root else None)
        run(name, declared)
    except PihError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as problem:
        if not of_the_disk(problem):
            raise
        told = BuildError(
            f"the disk does not do its part: {problem.strerror}",
            where=str(problem.filename or tempfile.gettempdir()),
            fix="see that it has room and can be written, or set PIH_STORE to a folder on another one",
        )
        print(told, file=sys.stderr)
        return told.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
