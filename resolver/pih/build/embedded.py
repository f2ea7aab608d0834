"""The embedded builder: fetches, then runs the lock's steps in parallel, each as soon as its inputs are there.

It decides nothing: the lock holds the whole graph. What an earlier build made is taken from the store.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import attrs

from pih.build import graph, interpreter, made, step
from pih.build.progress import Listener, StepDone, StepFailed, StepStarted
from pih.build.store import Store
from pih.lock import Artifact, Lock, Step


@attrs.frozen
class StepResult:
    """One step of a build. cached: an earlier build had made it. digest: of its output."""

    id: str
    key: str
    cached: bool
    seconds: float
    output: Path
    digest: str


@attrs.frozen
class Result:
    """A finished build. output: of the target, the last of the steps."""

    steps: tuple[StepResult, ...]
    output: Path

    @property
    def ran(self) -> tuple[str, ...]:
        """The steps that no earlier build had made."""
        return tuple(step.id for step in self.steps if not step.cached)


@attrs.frozen
class _Inputs:
    """What stays the same during one build."""

    lock: Lock
    steps: tuple[Step, ...]
    artifacts: Mapping[str, Artifact]
    trees: Mapping[str, str]
    interpreter: str

    def key(self, wanted: Step, done: Mapping[str, StepResult]) -> str:
        digests = {name: artifact.sha256 for name, artifact in self.artifacts.items()}
        outputs = {name: done[name].digest for name in wanted.steps}
        return graph.step_key(wanted, digests, self.trees, outputs, self.interpreter)

    def debs(self) -> list[Artifact]:
        return [self.artifacts[name] for name in self.lock.build.interpreter]


def build(
    lock: Lock,
    lock_path: Path,
    source_root: Path,
    store: Store,
    *,
    target: str,
    jobs: int,
    offline: bool,
    environment: Mapping[str, str],
    listener: Listener,
) -> Result:
    """Build the step `target` with all it is made from. jobs 0: a step for each CPU at the same time.

    Raises FetchError or BuildError; a step that did not end well leaves nothing behind.
    """
    graph.check(lock)
    graph.check_sizes(lock, store)
    steps = graph.closure(lock.build.steps, target)
    graph.check_sources(steps, source_root)
    inputs = _Inputs(
        lock,
        steps,
        {artifact.name: artifact for artifact in lock.artifacts},
        graph.tree_digests(steps, source_root, lock_path),
        interpreter.key([artifact for artifact in lock.artifacts if artifact.name in lock.build.interpreter]),
    )
    done = _known(inputs, store, listener)
    rest = [item for item in steps if item.id not in done]
    if rest:
        from pih.build import fetch, purl  # not needed to say that nothing has changed

        for artifact in lock.artifacts:
            for text in artifact.purls:
                purl.parse(text)
        names = [*lock.build.interpreter, *(name for item in rest for name in (*item.artifacts, *item.tools))]
        fetch.fetch(
            [inputs.artifacts[name] for name in names],
            store,
            lock_folder=lock_path.parent,
            environment=environment,
            offline=offline,
            listener=listener,
        )
        python = interpreter.unpack(inputs.debs(), store, listener)
        trees = {name: graph.tree_path(name, source_root, lock_path) for name in inputs.trees}
        with store.workspace() as work:
            _run_all(rest, done, inputs, store, python=python, trees=trees, work=work, jobs=jobs, listener=listener)
    return Result(tuple(done[item.id] for item in steps), done[target].output)


def _known(inputs: _Inputs, store: Store, listener: Listener) -> dict[str, StepResult]:
    """The steps whose output is in the store, as far as their keys can be told before anything runs.

    Whatever a step that is left will read has been read whole here: what is damaged counts as not there.
    """
    good: set[str] = set()
    while True:
        done = _recorded(inputs, store, listener)
        read = {name for item in inputs.steps if item.id not in done for name in item.steps if name in done}
        for name in sorted(read - good):
            if made.intact(store, "steps", done[name].key, name=name, listener=listener):
                good.add(name)
        if read <= good:
            break
    for name in done:
        listener(StepDone(name, 0.0, cached=True))
    return done


def _recorded(inputs: _Inputs, store: Store, listener: Listener) -> dict[str, StepResult]:
    done: dict[str, StepResult] = {}
    for item in inputs.steps:
        if all(name in done for name in item.steps):
            key = inputs.key(item, done)
            if found := made.find(store, "steps", key, name=item.id, listener=listener):
                done[item.id] = StepResult(item.id, key, True, 0.0, found.path, found.digest)
    return done


def _run_all(
    rest: list[Step],
    done: dict[str, StepResult],
    inputs: _Inputs,
    store: Store,
    *,
    python: Path,
    trees: Mapping[str, Path],
    work: Path,
    jobs: int,
    listener: Listener,
) -> None:
    """Run the steps that are left and add them to `done`; the first failure ends those that still run."""
    stop = threading.Event()
    check = _once_each(store)

    def run(item: Step, known: Mapping[str, StepResult]) -> StepResult:
        key = inputs.key(item, known)
        found = made.find(store, "steps", key, name=item.id, listener=listener)
        if found and made.intact(store, "steps", key, name=item.id, listener=listener):
            listener(StepDone(item.id, 0.0, cached=True))
            return StepResult(item.id, key, True, 0.0, found.path, found.digest)
        listener(StepStarted(item.id))
        started = time.monotonic()
        try:
            for name in (*item.artifacts, *item.tools):
                check(inputs.artifacts[name])
            output = step.run(
                item,
                key,
                store,
                python=python,
                artifacts={name: store.path(inputs.artifacts[name].sha256) for name in (*item.artifacts, *item.tools)},
                trees={name: trees[name] for name in graph.trees_of(item)},
                outputs={name: known[name].output for name in item.steps},
                work=work,
                stop=stop,
                listener=listener,
            )
        except BaseException:
            listener(StepFailed(item.id))
            raise
        seconds = time.monotonic() - started
        listener(StepDone(item.id, seconds, cached=False))
        return StepResult(item.id, key, False, seconds, output.path, output.digest)

    waiting = list(rest)
    running: set[Future[StepResult]] = set()
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        try:
            while waiting or running:
                for item in [item for item in waiting if all(name in done for name in item.steps)]:
                    waiting.remove(item)
                    running.add(pool.submit(run, item, dict(done)))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    result = future.result()
                    done[result.id] = result
        except BaseException:
            stop.set()
            for future in running:
                future.cancel()
            raise


def _once_each(store: Store) -> Callable[[Artifact], None]:
    """Checks an artifact's bytes before the first step that reads it: nothing is used before that."""
    seen: dict[str, threading.Lock] = {}
    good: set[str] = set()
    guard = threading.Lock()

    def check(artifact: Artifact) -> None:
        with guard:
            lock = seen.setdefault(artifact.sha256, threading.Lock())
        with lock:
            if artifact.sha256 not in good:
                store.check(artifact.sha256, artifact.size)
                good.add(artifact.sha256)

    return check
