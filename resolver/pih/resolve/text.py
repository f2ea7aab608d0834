"""The model's text files at lock time: judged as the `model` step and the worker will, where they are at hand.

What a build or a start would refuse is refused here, with the profile's line that names it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from pih.lock import Lock
from pih.profile import Profile
from pih.resolve.lowering import Fetch
from pih.resolve.memo import remembered
from pih_runtime.errors import BuildError, FetchError, ResolutionError

if TYPE_CHECKING:
    from pih_steps.model import Text

_STEP = "resolver/pih_steps/model.py"
_PLUGIN = "model/text"
_TEMPLATE = f"plugins/{_PLUGIN}/pih_model_text/template.py"  # the worker's own: nothing here knows what it takes
_ENGINE = ("jinja2", "markupsafe")  # the wheels that it imports
_SECONDS = 30  # to compile a template, which a worker would wait for at each start
_MEBIBYTES = 1024  # of addresses to compile it: constants are folded, and `'x' * 10**9` is one
# A process of its own, for the bundle's wheels are not the build host's. Says why the template on stdin is refused.
# Its own time is limited too, should nobody be left to end it.
_PARSE = """
import resource, sys
seconds, mebibytes = map(int, sys.argv[1:3])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
sys.path[:0] = sys.argv[3:]
from pih_runtime.errors import WorkerError
from template import ChatTemplate
try:
    ChatTemplate(sys.stdin.buffer.read().decode(), {})
except WorkerError as problem:
    print(problem.what)
except MemoryError:
    print(f"a chat template that is not compiled within {mebibytes} MiB of memory")
"""


@attrs.frozen
class Taken:
    """The files are such as are taken: all that is remembered of them."""


def check(lock: Lock, profile: Profile, root: Path, fetch: Fetch, memo: Path | None) -> None:
    """Raise ResolutionError where the locked text files come to nothing. root: of the source tree.

    fetch: raises FetchError for what is not to be had, which cannot be judged. memo: a folder that remembers.
    """
    step = next(step for step in lock.build.steps if step.run == "model")
    roles = step.params["files"]
    known = {artifact.name: artifact for artifact in lock.artifacts}

    @cache
    def text() -> Text:
        from pih_steps.model import text_of  # what is remembered needs none of it

        files = {name: fetch(known[name]) for name in step.artifacts}
        return text_of(roles, files, {tree: root / tree for tree in step.trees})

    def judge(by: str, names: tuple[str, ...], made: Callable[[], object]) -> None:
        def taken() -> Taken:
            made()
            return Taken()

        digests = {name: known[name].sha256 for name in names}
        remembered(memo, root, {"judge": by, "files": roles}, digests, (*step.trees, by), taken, Taken)

    try:
        judge(_STEP, step.artifacts, text)
        own = any(plugin.id == _PLUGIN for plugin in lock.plugins)  # another's templates are another's to judge
        if own and known.keys() >= {*_ENGINE}:
            wheels = (*step.artifacts, *_ENGINE)
            judge(
                _TEMPLATE,
                wheels,
                lambda: _parse(text().chat_template, [fetch(known[name]) for name in _ENGINE], root, roles),
            )
    except FetchError:
        return
    except BuildError as problem:
        raise _refusal(problem, roles, profile, root) from problem


def _parse(template: bytes, wheels: list[Path], root: Path, roles: Mapping[str, Any]) -> None:
    from pih_steps.lower.files import described

    path = [*wheels, (root / _TEMPLATE).parent, root / "runtime"]
    command = [sys.executable, "-I", "-B", "-c", _PARSE, str(_SECONDS), str(_MEBIBYTES), *map(str, path)]
    try:
        # A Python that cannot import the wheels says nothing of the template.
        done = subprocess.run(command, input=template, capture_output=True, check=False, timeout=_SECONDS)
        late = done.returncode == -signal.SIGXCPU
    except subprocess.TimeoutExpired:
        late = True
    said = f"a chat template that is not compiled within {_SECONDS} s".encode() if late else done.stdout
    if words := said.decode(errors="replace").strip():
        where = described(roles.get("chat_template") or roles["weights"])
        raise BuildError(words, where=where, fix="correct it, or take the file of the model's publisher")


def _refusal(problem: BuildError, roles: Mapping[str, Any], profile: Profile, root: Path) -> ResolutionError:
    from pih_steps.lower.files import described

    of = [role for role, reference in roles.items() if described(reference) == problem.where]
    role = next((role for role in of if getattr(profile.intent.model, role)), "weights")
    return ResolutionError(
        f"Because {profile.reason(root, 'model', role)},\n  and {problem.where}: {problem.what}.\n"
        "  So nothing can be served of it.",
        fix=problem.fix,
    )
