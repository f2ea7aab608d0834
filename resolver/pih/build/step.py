"""Running one build step: its declared inputs laid out in a folder of its own, a fresh process, one output."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pih.build import graph, interpreter, made, tree
from pih.build.made import Made
from pih.build.progress import Listener
from pih.build.store import Store
from pih.lock import Step
from pih_runtime.errors import BuildError
from pih_steps.spec import LOCK_TREE

_LINES = 30
_POLL = 0.1


class StoppedError(Exception):
    """The build was given up while this step ran."""


def run(
    step: Step,
    key: str,
    store: Store,
    *,
    python: Path,
    artifacts: Mapping[str, Path],
    trees: Mapping[str, Path],
    outputs: Mapping[str, Path],
    work: Path,
    stop: threading.Event,
    listener: Listener,
) -> Made:
    """Run a step and record its output; raises BuildError with its last words where it fails.

    python: root of the pinned interpreter. trees: where the source trees are copied from.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{step.id}-", dir=work))
    scratch, entry = folder / "scratch", folder / "entry"
    scratch.mkdir()
    entry.mkdir()
    staged = {name: _stage(path, folder / "source" / _place(name)) for name, path in trees.items()}
    specification = {
        "params": step.params,
        "artifacts": {name: str(artifacts[name]) for name in step.artifacts},
        "trees": {name: str(staged[name]) for name in step.trees},
        "steps": {name: str(outputs[name]) for name in step.steps},
        "tools": [str(artifacts[name]) for name in step.tools],
        "output": str(entry / "output"),
    }
    (folder / "spec.json").write_text(json.dumps(specification, indent=1), encoding="utf-8")
    program = [
        *interpreter.command(python),
        str(folder / "source" / graph.PROGRAM[0]),
        step.run,
        str(folder / "spec.json"),
    ]
    started = time.monotonic()
    _process(program, scratch, folder / "log", step, stop)
    if not (entry / "output").exists():
        raise BuildError(f"step {step.id!r} ended well and wrote no output", fix="this is a defect of the step")
    _normalise(entry / "output")
    facts = {"step": step.id, "seconds": round(time.monotonic() - started, 3)}
    found = made.publish(store, entry, "steps", key, name=step.id, listener=listener, facts=facts)
    tree.remove(folder)
    return found


def _place(name: str) -> str:
    return "lock.json" if name == LOCK_TREE else name


def _stage(path: Path, target: Path) -> Path:
    """Copy a source tree: a step sees what it declares, and an edit during the build cannot reach it half-way."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for name, source in graph.files_of(path):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy, follow_symlinks=False)
    return target


def _process(program: Sequence[str], scratch: Path, log: Path, step: Step, stop: threading.Event) -> None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            program,
            cwd=scratch,
            env=interpreter.environment(scratch),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
        )
    try:
        while process.poll() is None:
            if stop.wait(_POLL) and process.poll() is None:
                raise StoppedError(step.id)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # the step's own children too, such as a compiler
            process.wait()
    if process.returncode:
        raise BuildError(_failure(step, process.returncode, log), where=f"build step {step.id}")


def _failure(step: Step, code: int, log: Path) -> str:
    said = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return "\n    ".join([f"{step.run} failed ({how})" + (":" if said else ""), *said[-_LINES:]])


def _normalise(path: Path) -> None:
    """Outputs are shared by later builds: nobody writes to them in place."""
    below = [Path(entry.path) for entry in tree.below(path)] if path.is_dir() else []
    for entry in [path, *below]:
        if entry.is_symlink():
            continue
        if entry.is_dir():
            entry.chmod(0o755)
        else:
            entry.chmod(0o555 if os.access(entry, os.X_OK) else 0o444)
