"""The embedded builder with tiny steps: caching, failure, interruption, isolation."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

from pih.build import check
from pih.build.progress import Dropped, StepDone, StepFailed, StepStarted
from pih.lock import BuildGraph
from pih_runtime.errors import BuildError, FetchError, LockError, WorkerError
from tests.integration.build.tiny import GRAPH, INTERPRETER, REPOSITORY, SEED, a_step
from tests.support.waiting import until


def with_steps(lock, *steps):
    return attrs.evolve(lock, build=BuildGraph(INTERPRETER, SEED, tuple(steps)))


def ran(result):
    return [step.id for step in result.steps if not step.cached]


def test_builds_all_steps_from_their_inputs(build, a_lock):
    result = build(a_lock)
    assert (result.output / "text").read_text() == "j|f|one|s|two|86684"
    assert ran(result) == ["first", "second", "join", "image"]


def test_only_what_the_target_is_made_from_runs(build, a_lock):
    result = build(a_lock, target="second")
    assert result.output.read_text() == "s|two|86684"
    assert ran(result) == ["second"]


def test_a_target_that_no_step_has_is_refused(build, a_lock):
    with pytest.raises(LockError, match="no build step 'weights'"):
        build(a_lock, target="weights")


def test_unchanged_build_runs_nothing_and_needs_no_artifact(build, a_lock, store):
    first = build(a_lock)
    for path in (store.root / "sha256").iterdir():
        path.unlink()
    second = build(a_lock)
    assert ran(second) == []
    assert second.output == first.output


def test_an_edit_rebuilds_what_depends_on_it(build, a_lock, project):
    build(a_lock)
    (project / "trees/b").write_text("changed")
    assert ran(build(a_lock)) == ["second", "join", "image"]


def test_a_step_that_gives_the_same_bytes_again_stops_the_rebuild(build, a_lock, project):
    build(a_lock)
    program = project / "resolver/pih_steps/join.py"
    program.write_text(program.read_text() + "# a comment\n")
    result = build(attrs.evolve(a_lock))
    assert "first" in ran(result)
    assert "image" in ran(result)  # its program changed with the tree
    only = with_steps(a_lock, a_step("first", params={"text": "f"}, trees=["trees/a"]), a_step("join", steps=["first"]))
    only = with_steps(only, *only.build.steps, a_step("image", "image", steps=["join"]))
    build(only)
    renamed = with_steps(
        only, a_step("first", params={"text": "f", "unused": 1}, trees=["trees/a"]), *only.build.steps[1:]
    )
    assert ran(build(renamed)) == ["first"]


def test_a_failed_step_gives_its_last_words_and_leaves_nothing(build, a_lock, store):
    events = []
    before = sorted(path.name for path in (store.root / "steps").iterdir())
    with pytest.raises(BuildError) as failure:
        build(with_steps(a_lock, a_step("image", "fail")), listener=events.append)
    assert failure.value.exit_code == 7
    assert "the sky is falling" in str(failure.value)
    assert "and that is why" in str(failure.value)
    assert "build step image" in str(failure.value)
    assert [type(event) for event in events] == [StepStarted, StepFailed]
    assert sorted(path.name for path in (store.root / "steps").iterdir()) == before
    assert list((store.root / "tmp").iterdir()) == []


def test_a_failure_ends_the_steps_that_still_run(build, a_lock):
    started = time.monotonic()
    steps = (a_step("slow", "sleep", params={"seconds": 600}), a_step("bad", "fail"))
    with pytest.raises(BuildError, match="bad"):
        build(with_steps(a_lock, *steps))
    assert time.monotonic() - started < 300


def test_steps_see_only_what_they_declare(build, a_lock, project, monkeypatch):
    monkeypatch.setenv("PIH_SECRET", "1")
    (project / "resolver/pih_steps/__pycache__").mkdir()
    (project / "resolver/pih_steps/__pycache__/x.pyc").touch()
    steps = (a_step("join", "look", trees=["trees/a", "lock"]), a_step("image", "image", steps=["join"]))
    seen = json.loads((build(with_steps(a_lock, *steps)).output / "text").read_text())
    assert seen["environment"] == ["HOME", "LC_ALL", "SOURCE_DATE_EPOCH", "TMPDIR", "TZ"]
    assert seen["python"].startswith("3.11.2")
    assert seen["cwd"] == []
    assert seen["umask"] == 0o022
    assert seen["flags"] == [1, 1]
    assert seen["zone"] == "UTC"
    assert "trees/a/one" in seen["source"]
    assert "lock.json" in seen["source"]
    assert not [name for name in seen["source"] if "trees/b" in name or "pyc" in name]
    assert all(str(Path(sys.prefix)) not in entry for entry in seen["path"])


def test_a_step_that_declares_part_of_the_program_is_not_run_again_for_the_rest(build, a_lock, project):
    own = ["resolver/pih_steps/__init__.py", "resolver/pih_steps/__main__.py"]
    own += ["runtime/pih_runtime/__init__.py"]
    steps = (
        a_step("join", params={"text": "x"}, trees=[*own, "resolver/pih_steps/join.py"]),
        a_step("image", "image", steps=["join"], trees=[*own, "resolver/pih_steps/image.py"]),
    )
    lock = with_steps(a_lock, *steps)
    build(lock)
    (project / "resolver/pih_steps/look.py").write_text("changed")
    assert ran(build(lock)) == []
    (project / "resolver/pih_steps/image.py").write_text("def run(spec): import pih_steps.look")
    with pytest.raises(BuildError, match="look"):
        build(lock)


def test_offline_names_everything_that_is_missing(build, a_lock, store):
    missing = [artifact for artifact in a_lock.artifacts if artifact.name in ("libc6", "zlib1g")]
    for artifact in missing:
        store.path(artifact.sha256).unlink()
    with pytest.raises(FetchError) as failure:
        build(a_lock)
    for artifact in missing:
        assert artifact.name in str(failure.value)
        assert artifact.purls[0] in str(failure.value)
    assert failure.value.exit_code == 6
    assert "libexpat1" not in str(failure.value)


def test_a_truncated_artifact_is_fetched_again(build, a_lock, store, tmp_path):
    artifact = next(artifact for artifact in a_lock.artifacts if artifact.name == "zlib1g")
    path = store.path(artifact.sha256)
    whole = path.read_bytes()
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/any name").write_bytes(whole)
    path.unlink()
    path.write_bytes(whole[:-1])
    build(a_lock, environment={"PIH_MIRROR": str(tmp_path / "mirror")})
    assert path.read_bytes() == whole


def test_an_artifact_that_was_damaged_in_the_store_is_not_used(build, a_lock, store):
    artifact = next(artifact for artifact in a_lock.artifacts if artifact.name == "zlib1g")
    path = store.path(artifact.sha256)
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(b"x" * size)
    with pytest.raises(FetchError, match="damaged"):
        build(a_lock)
    assert not path.exists()


def test_no_terminal_events_for_cached_steps(build, a_lock):
    build(a_lock)
    events = []
    build(a_lock, listener=events.append)
    assert events == [StepDone(step.id, 0.0, cached=True) for step in GRAPH]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "no build steps"),
        ((a_step("a", steps=["b"]), a_step("b")), "does not come before"),
        ((a_step("a", steps=["a"]),), "does not come before"),
        ((a_step("a"), a_step("a")), "two build steps"),
        ((a_step("a", artifacts=["nothing"]),), "nothing"),
        ((a_step("a", trees=["../outside"]),), "outside"),
        ((a_step("a", trees=["/etc"]),), "outside"),
        *(
            ((a_step("a", trees=[tree]),), "outside")
            for tree in ("", ".", "./a", "a//b", "a/", "a\0b", "a\nb", "\ud800")
        ),
    ],
)
def test_a_graph_that_does_not_hold_together_is_refused(build, a_lock, steps, message):
    with pytest.raises(LockError, match=message) as failure:
        build(with_steps(a_lock, *steps))
    assert failure.value.exit_code == 5


def test_a_missing_source_tree_is_named(build, a_lock):
    with pytest.raises(BuildError, match="trees/zzz"):
        build(with_steps(a_lock, a_step("a", trees=["trees/zzz"])))


def started_below(folder):
    """Processes whose command names something there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if os.fsencode(folder) in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3, 0.5, 0.8, 1.2])
def test_killed_at_any_point_the_next_build_works(build, a_lock, project, store, tmp_path, delay):
    """The victim runs the same build in a process group of its own, killed without warning."""
    (tmp_path / "lock.pickle").write_bytes(__import__("pickle").dumps(a_lock))
    victim = textwrap.dedent(f"""
        import os, pickle, pathlib
        from pih.build import check, embedded
        from pih.build.store import open_store
        from pih.build.progress import silent
        os.write(1, b"go")
        embedded.build(pickle.loads(pathlib.Path({str(tmp_path / "lock.pickle")!r}).read_bytes()),
            pathlib.Path({str(project / "tiny.lock.json")!r}), pathlib.Path({str(project)!r}),
            open_store(pathlib.Path({str(store.root)!r})),
            target={a_lock.build.steps[-1].id!r}, jobs=2, offline=True, environment={{}}, listener=silent)
    """)
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'resolver'}:{REPOSITORY / 'runtime'}"}
    process = subprocess.Popen([sys.executable, "-c", victim], stdout=subprocess.PIPE, env=environment)
    assert process.stdout
    assert process.stdout.read(2) == b"go"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    result = build(a_lock)
    assert (result.output / "text").read_text() == "j|f|one|s|two|86684"
    until(lambda: not started_below(store.root))  # an orphaned step may still be writing
    build(a_lock)
    with store.workspace() as work:
        assert sorted((store.root / "tmp").iterdir()) == sorted([work, work.with_suffix(".lock")])


def test_check_names_the_step_that_is_not_pure_and_where_it_differs(build, a_lock, project, store):
    (project / "resolver/pih_steps/clock.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "def run(spec):\n"
        "    Path(spec['output']).mkdir()\n"
        "    (Path(spec['output']) / 'when').write_text('at ' + os.urandom(8).hex())\n"
    )
    lock = with_steps(a_lock, a_step("pure"), a_step("impure", "clock"), a_step("next", "sizes", steps=["impure"]))
    (project / "resolver/pih_steps/sizes.py").write_text(
        "import shutil\ndef run(spec):\n    shutil.copytree(spec['steps']['impure'], spec['output'])\n"
    )
    first = build(lock)
    inputs = {step.id: step.steps for step in lock.build.steps}
    findings = check.again(first, store, inputs, lambda other: build(lock, into=other))
    assert [(f.step, f.difference.path, f.inherited) for f in findings] == [
        ("impure", "when", False),
        ("next", "when", True),
    ]
    assert findings[0].difference.offset >= 3


def test_check_of_pure_steps_finds_nothing(build, a_lock, store):
    inputs = {step.id: step.steps for step in a_lock.build.steps}
    assert check.again(build(a_lock), store, inputs, lambda other: build(a_lock, into=other)) == []


def damage(path):
    """Other bytes of the same size and time: what a bad disk does."""
    times = path.stat()
    mode = times.st_mode
    path.chmod(0o644)
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    path.chmod(mode)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def output_of(result, step):
    return next(one.output for one in result.steps if one.id == step)


def test_a_damaged_output_is_made_again_before_anything_reads_it(build, a_lock, project):
    first = build(a_lock)
    damage(output_of(first, "second"))
    (project / "trees/a/one").write_text("changed")
    events = []
    result = build(a_lock, listener=events.append)
    assert (result.output / "text").read_text() == "j|f|changed|s|two|86684"
    assert ran(result) == ["first", "second", "join", "image"]
    assert events.count(Dropped("second")) == 1


def test_a_damaged_output_that_is_found_while_others_run_is_made_again(build, a_lock):
    first = build(a_lock)
    for step in ("join", "image"):
        damage(output_of(first, step) if step == "join" else output_of(first, step) / "text")
    output_of(first, "first").unlink()
    result = build(a_lock)
    assert (result.output / "text").read_text() == "j|f|one|s|two|86684"
    assert ran(result) == ["first", "join", "image"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda entry: (entry / "output/text").write_text("edited"),
        lambda entry: shutil.rmtree(entry / "output"),
        lambda entry: (entry / "meta.json").unlink(),
        lambda entry: (entry / "meta.json").write_text("{}"),
        lambda entry: (entry / "meta.json").write_text("null"),
        lambda entry: (entry / "meta.json").write_bytes((entry / "meta.json").read_bytes()[:20]),
    ],
)
def test_a_damaged_image_is_made_again_and_then_stays(build, a_lock, edit):
    entry = build(a_lock).output.parent
    edit(entry)
    events = []
    result = build(a_lock, listener=events.append)
    assert (result.output / "text").read_text() == "j|f|one|s|two|86684"
    assert ran(result) == ["image"]
    assert events.count(Dropped("image")) == 1
    assert ran(build(a_lock)) == []


def test_a_damaged_interpreter_is_unpacked_again(build, a_lock, store):
    (library,) = (store.root / "python").glob("*/output/usr/bin/python3.11")
    before = library.read_bytes()
    library.unlink()  # a link to the file that other tests have
    library.write_bytes(b"no program")
    build(a_lock)
    assert library.read_bytes() == before


def test_a_disk_that_is_full_is_told_in_words(build, a_lock, store, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(store.root / "tmp/x"))

    monkeypatch.setattr("shutil.copy", full)
    with pytest.raises(WorkerError, match="No space left") as failure:
        build(a_lock)
    assert failure.value.where == str(store.root)
    assert list((store.root / "tmp").iterdir()) == []
    assert list((store.root / "steps").iterdir()) == []


HOSTILE = ["", ".", "..", "../../../ESCAPED/y", "a/b", "/a", "a\0b", "a\nb", "a" * 300, "\ud800", "A", "-a", "a b"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("part", ["id", "run"])
def test_names_that_are_paths_are_refused(build, a_lock, store, tmp_path, name, part):
    with pytest.raises(LockError, match="cannot name") as failure:
        build(with_steps(a_lock, attrs.evolve(GRAPH[0], **{part: name})), target=name)
    assert failure.value.exit_code == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project", "store"]
    assert list((store.root / "tmp").iterdir()) == []


def test_a_program_that_is_not_there_is_refused(build, a_lock):
    with pytest.raises(LockError, match="no program"):
        build(with_steps(a_lock, a_step("a", "nothing")))


def test_package_urls_are_looked_at_before_anything_runs(build, a_lock, store):
    first = attrs.evolve(a_lock.artifacts[0], purls=("pkg:pypi/a%0A--index-url@1?file_name=a.whl",))
    with pytest.raises(LockError):
        build(attrs.evolve(a_lock, artifacts=(first, *a_lock.artifacts[1:])))
    assert list((store.root / "steps").iterdir()) == []


@pytest.mark.parametrize("built", [False, True])
def test_another_size_than_the_file_of_that_digest_has_is_refused(build, a_lock, store, built):
    """Whether or not there is a step left that reads it."""
    if built:
        build(a_lock)
    zlib = next(item for item in a_lock.artifacts if item.name == "zlib1g")
    others = tuple(item for item in a_lock.artifacts if item != zlib)
    with pytest.raises(LockError, match="the lock says 86685 bytes, and the file of this digest has 86684"):
        build(attrs.evolve(a_lock, artifacts=(*others, attrs.evolve(zlib, size=zlib.size + 1))))
    assert store.has(zlib.sha256, zlib.size)


def test_two_sizes_of_one_digest_are_refused(build, a_lock):
    zlib = next(item for item in a_lock.artifacts if item.name == "zlib1g")
    again = attrs.evolve(zlib, name="again", size=zlib.size - 1)
    with pytest.raises(LockError, match="two sizes for the sha256 of artifact 'again'"):
        build(attrs.evolve(a_lock, artifacts=(*a_lock.artifacts, again)))
