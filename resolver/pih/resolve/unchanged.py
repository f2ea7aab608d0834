"""Whether a lock still says what locking would say, where no profile or plugin tells: `pih.stale` has those.

Code and files of the source tree are not locked by digest, and yet a plan follows from some of them; files beside the
profile are, and may be others by now.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

from pih.build import purl
from pih.catalog import Catalog
from pih.lock import Artifact, Lock, path_for
from pih.profile import Profile
from pih.resolve.lowered import lowered
from pih.resolve.lowering import Fetch, because_of
from pih_runtime.errors import FetchError, LockError, ResolutionError
from pih_steps.plugins import PARAM

_READ = 16 << 20  # bytes of a file that are compared with its digest each time; of a larger one its size is


def check(lock: Lock, profile: Profile, catalog: Catalog, fetch: Fetch, memo: Path | None) -> None:
    """Raise LockError (exit 5) where it does not. fetch: from the store alone; what is not there cannot be judged."""
    problem = _other_files(lock, profile.path.parent) or _other_plan(lock, profile, catalog, fetch, memo)
    if problem:
        fix = f"pih lock --profile {shlex.quote(str(profile.path))}"
        raise LockError(problem, where=str(path_for(profile.path)), fix=fix)


def _other_files(lock: Lock, folder: Path) -> str:
    """Why a file beside the profile is not the locked one, or ''; one that is gone may be in the store."""
    for artifact in lock.artifacts:
        if artifact.kind == "file":
            named = purl.qualifier(purl.parse(artifact.purls[0]), "path")
            if (folder / named).is_file() and not _same(folder / named, artifact):
                return f"artifacts: {named} has other bytes than when it was locked"
    return ""


def _same(path: Path, artifact: Artifact) -> bool:
    if path.stat().st_size != artifact.size:
        return False
    return artifact.size > _READ or hashlib.sha256(path.read_bytes()).hexdigest() == artifact.sha256


def _other_plan(lock: Lock, profile: Profile, catalog: Catalog, fetch: Fetch, memo: Path | None) -> str:
    """Why lowering gives another plan than the locked one, or ''."""
    step = next((step for step in lock.build.steps if step.run == "plan"), None)
    if step is None:
        return "build: no step lowers the model"
    params = {key: value for key, value in step.params.items() if key not in ("expected_plan_sha256", PARAM)}
    artifacts = {artifact.name: artifact for artifact in lock.artifacts}
    carried = {plugin.id: artifacts[plugin.artifact] for plugin in lock.plugins if plugin.artifact}
    pack = next((plugin for plugin in lock.plugins if f"plugins/{plugin.id}" == params.get("kernels")), None)
    if pack is None:
        return "plugins: none of them has the kernels that the plan is bound to"
    report = next(plugin.report for plugin in catalog.plugins if (plugin.id, plugin.version) == (pack.id, pack.version))
    because = because_of(profile, catalog, pack.reasons[0])
    read = f"{params['model']}, the lowering or a file of the model is another than when it was locked"
    try:
        now = lowered(params, catalog.root, artifacts, carried, report, fetch, because, memo)
    except FetchError:
        return ""
    except ResolutionError as problem:
        return f"plan: {read}, and nothing can be lowered.\n{problem.what}"
    if (now.plan, now.bindings, now.fallbacks) != (lock.plan, lock.bindings, lock.fallbacks):
        return f"plan: {read}, and so is the plan"
    held = (lock.budget.weights, lock.budget.kv)
    return "" if held == (now.weights, now.kv) else "budget: weights and kv are not the bytes that the plan needs"
