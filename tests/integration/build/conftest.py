"""A made-up project, built for real: real interpreter, real processes."""

import json
import os
import shutil

import attrs
import pytest

from pih.build import embedded, fetch, interpreter
from pih.build.progress import silent
from pih.build.store import open_store
from pih.lock import SCHEMA, Artifact, Budget, BuildGraph, Limits, Lock, PlanRef, ProfileRef, Service, Target, Weights
from tests.integration.build.registries import quiet_environment
from tests.integration.build.tiny import GRAPH, INTERPRETER, PROGRAMS, SEED
from tests.support.artifacts import artifact, pinned


@pytest.fixture(scope="session")
def interpreter_artifacts() -> tuple[Artifact, ...]:
    return tuple(pinned("deb", name) for name in INTERPRETER)


@pytest.fixture
def project(tmp_path):
    """The source tree of a made-up project."""
    root = tmp_path / "project"
    steps = root / "resolver/pih_steps"
    steps.mkdir(parents=True)
    (steps / "__init__.py").touch()
    for name, text in PROGRAMS.items():
        (steps / f"{name}.py").write_text(text)
    (root / "runtime/pih_runtime").mkdir(parents=True)
    (root / "runtime/pih_runtime/__init__.py").touch()
    (root / "trees/a").mkdir(parents=True)
    (root / "trees/a/one").write_text("one")
    (root / "trees/b").write_text("two")
    return root


@pytest.fixture(scope="session")
def warm_store(tmp_path_factory, interpreter_artifacts):
    """A store with the unpacked interpreter; tests take copies of it."""
    store = open_store(tmp_path_factory.mktemp("warm"))
    for name in INTERPRETER:
        store.add_file(artifact("deb", name))
    interpreter.unpack(interpreter_artifacts, store)
    return store


@pytest.fixture
def store(tmp_path, warm_store):
    root = tmp_path / "store"
    shutil.copytree(warm_store.root, root, symlinks=True, copy_function=os.link)
    return open_store(root)


@pytest.fixture
def a_lock(interpreter_artifacts):
    return Lock(
        schema=SCHEMA,
        pih="0",
        profile=ProfileRef("tiny", "tiny.toml", "0" * 64),
        target=Target("linux", "x86_64", "x86-64-v3", 1, 1 << 30, None),
        model={},
        limits=Limits(1, 1, 1, "f32", 0),
        service=Service("127.0.0.1", 1, "tiny"),
        weights=Weights("stored", "embed", "start", ""),
        requires=(),
        plugins=(),
        start_order=(),
        bindings=(),
        fallbacks=(),
        budget=Budget(0, 0, 0, 0, 0, 0, 1 << 30, 0, 0),
        plan=PlanRef("0" * 64, 0),
        artifacts=interpreter_artifacts,
        build=BuildGraph(INTERPRETER, SEED, GRAPH),
    )


@pytest.fixture
def build(project, store):
    """Build a lock in the project; remembers nothing."""

    def run(lock, *, target=None, into=store, listener=silent, offline=True, jobs=2, environment=None):
        path = project / "tiny.lock.json"
        path.write_text(json.dumps(attrs.asdict(lock)))
        return embedded.build(
            lock,
            path,
            project,
            into,
            target=target or [step.id for step in lock.build.steps or GRAPH][-1],
            jobs=jobs,
            offline=offline,
            environment=environment or {},
            listener=listener,
        )

    return run


@pytest.fixture
def shelf(tmp_path):
    """An empty store."""
    return open_store(tmp_path / "store")


@pytest.fixture
def bring(shelf, tmp_path):
    """Fetch artifacts into the empty store, from the registries that the environment names."""

    def run(*artifacts, environment=None, offline=False, listener=silent):
        settings = {**quiet_environment(tmp_path), **(environment or {})}
        fetch.fetch(artifacts, shelf, lock_folder=tmp_path, environment=settings, offline=offline, listener=listener)

    return run
