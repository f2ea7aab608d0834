"""Start in order, stop in reverse; every failure point, with real packages that fail there."""

import sys
from itertools import count

import pytest

from pih_runtime import microkernel
from pih_runtime.errors import WorkerError
from pih_runtime.lock import Lock, Plugin

NAMES = count()
FAKE = """
{top}
class Provider:
    def __init__(self, context):
        self.context = context
    def stop(self):
        self.context.log("stop {name}")
        {stop}
    def drain(self):
        self.context.log("drain {name}")
def start(context):
    context.log("start {name}")
    {start}
    return Provider(context)
"""


@pytest.fixture
def log():
    return []


@pytest.fixture
def deployment(tmp_path, monkeypatch):
    """A lock of packages written to a folder; each plugin requires what the one before provides."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(**bodies):
        plugins, before = [], {}
        for name, body in bodies.items():
            package = f"fake{next(NAMES)}_{name}"
            (tmp_path / package).mkdir()
            text = FAKE.format(**{"name": name, "top": "", "start": "pass", "stop": "pass", **body})
            (tmp_path / package / "__init__.py").write_text(text)
            entry = f"{package}:{body.get('entry', 'start')}"
            plugins.append(Plugin(name, "1", package, entry, (f"c.{name}",), before, {"own": name}))
            before = {f"c.{name}": name}
        return Lock("p", "0", (), {}, tuple(plugins), "here:1", {"whole": "lock"})

    yield made
    for name in [name for name in sys.modules if name.startswith("fake")]:
        del sys.modules[name]


def surroundings(tmp_path, log):
    return microkernel.Surroundings(tmp_path, "there:2", log.append, lambda: False, log.append)


def run(lock, tmp_path, log):
    """Start and stop; returns the first cause and the release errors."""
    started, cause = [], None
    try:
        for item in microkernel.start(lock, surroundings(tmp_path, log)):
            started.append(item)  # noqa: PERF402 - what was given before a failure counts
    except WorkerError as problem:
        cause = problem
    return cause, microkernel.stop(started)


def test_plugins_start_in_order_and_stop_in_reverse(deployment, tmp_path, log):
    cause, problems = run(deployment(a={}, b={}, c={}), tmp_path, log)
    assert (cause, problems) == (None, [])
    assert log == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


@pytest.mark.parametrize(("fails", "started"), [("a", []), ("b", ["a"]), ("c", ["b", "a"])])
def test_whoever_fails_to_start_those_before_are_stopped(deployment, tmp_path, log, fails, started):
    bodies = {name: {} for name in "abc"}
    bodies[fails] = {"start": "raise RuntimeError('broken')"}
    cause, problems = run(deployment(**bodies), tmp_path, log)
    assert f"plugin {fails}: failed to start: RuntimeError: broken (__init__.py:" in str(cause)
    assert problems == []
    assert [line for line in log if line.startswith("stop")] == [f"stop {name}" for name in started]


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "__import__('sys').exit('bye')"])
def test_a_plugin_that_exits_has_failed_to_start(deployment, tmp_path, log, ending):
    cause, _ = run(deployment(a={}, b={"start": ending}), tmp_path, log)
    assert "plugin b: failed to start: SystemExit" in str(cause)
    assert log[-1] == "stop a"


def test_a_plugins_own_error_is_kept(deployment, tmp_path, log):
    start = "from pih_runtime.errors import SealError; raise SealError('bad weights')"
    with pytest.raises(WorkerError):
        raise run(deployment(a={"start": "raise ValueError"}), tmp_path, log)[0]
    lock = deployment(a={"start": start})
    with pytest.raises(Exception, match="bad weights") as caught:
        list(microkernel.start(lock, surroundings(tmp_path, log)))
    assert caught.value.exit_code == 8


def test_a_failing_stop_keeps_none_of_the_others_and_all_are_reported(deployment, tmp_path, log):
    bodies = {
        "a": {"stop": "raise OSError('a is stuck')"},
        "b": {},
        "c": {"stop": "raise ValueError('c is stuck')"},
        "d": {"start": "raise RuntimeError('first cause')"},
    }
    cause, problems = run(deployment(**bodies), tmp_path, log)
    assert "first cause" in str(cause)
    assert log[-3:] == ["stop c", "stop b", "stop a"]
    assert ["plugin c failed to stop: ValueError: c is stuck" in problems[0], "a is stuck" in problems[1]] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"top": "import no_such_module"}, "cannot be imported: ModuleNotFoundError"),
        ({"top": "1 / 0"}, "cannot be imported: ZeroDivisionError"),
        ({"top": "def broken("}, "cannot be imported: SyntaxError"),
        ({"entry": "begin"}, "cannot be imported: AttributeError"),
        ({"entry": "value", "top": "value = 3"}, "is not a function"),
    ],
)
def test_a_plugin_that_cannot_be_imported_keeps_all_from_starting(deployment, tmp_path, log, body, words):
    cause, _ = run(deployment(a={}, b=body), tmp_path, log)
    assert words in str(cause)
    assert "plugin b" in str(cause)
    assert log == []


def test_a_plugin_gets_its_own_settings_and_what_it_requires_and_nothing_else(deployment, tmp_path, log):
    ask = "context.log((context.settings['own'], context.lock['whole'], context.listen, context.provider('c.a')))"
    cause, _ = run(deployment(a={}, b={"start": ask}), tmp_path, log)
    assert cause is None
    assert log[2][:3] == ("b", "lock", "there:2")
    assert type(log[2][3]).__name__ == "Provider"
    cause, _ = run(deployment(a={}, b={}, c={"start": "context.provider('c.a')"}), tmp_path, log)
    assert "plugin c: asks for c.a, which its plugin.toml does not require" in str(cause)


def test_what_the_build_served_is_not_there_at_run_time(deployment, tmp_path, log):
    lock = deployment(a={"start": "context.provider('kernels.pack')"})
    plugin = lock.plugins[0]
    needy = Plugin(plugin.id, "1", plugin.package, plugin.entry, (), {"kernels.pack": "kernels/cpu"}, {})
    cause, _ = run(Lock("p", "0", (), {}, (needy,), "", {}), tmp_path, log)
    assert "kernels.pack, which the build served" in str(cause)


def test_those_with_work_drain_in_reverse(deployment, tmp_path, log):
    started = list(microkernel.start(deployment(a={}, b={}), surroundings(tmp_path, log)))
    microkernel.drain(started)
    assert log[-2:] == ["drain b", "drain a"]
