"""Asking the user's own registries what they have now, for `pih lock`: a name becomes an artifact with its digest.

Each registry's module is imported where it is asked: locking again asks none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pih.build.store import Store
from pih.lock import Artifact
from pih.sources import Source
from pih_runtime.errors import UsageError


def newest(store: Store, environment: Mapping[str, str]) -> Callable[[str, Sequence[str]], list[Artifact]]:
    """A function (kind, names) → the newest of each: 'deb', 'wheel' or 'npm'."""

    def pin(kind: str, names: Sequence[str]) -> list[Artifact]:
        match kind:
            case "deb":
                from pih.build import apt

                with store.workspace() as work:
                    return apt.pin_debs(names, work, environment)
            case "wheel":
                from pih.build import pip

                return [pip.pin_wheel(name, store, environment) for name in names]
            case "npm":
                from pih.build import npm

                return [npm.pin_npm(f"{name}@latest", store, environment) for name in names]
        raise UsageError(
            f"no registry serves artifacts of kind {kind!r}", fix="upgrade a deb, a wheel or an npm package"
        )

    return pin


def of_source(store: Store, environment: Mapping[str, str]) -> Callable[[Source], Artifact]:
    """A function: source string of a profile → the artifact that holds the file."""

    def pin(source: Source) -> Artifact:
        match source.kind:
            case "pypi":
                from pih.build import pip

                return pip.pin_wheel(f"{source.name}=={source.version}", store, environment)
            case "npm":
                from pih.build import npm

                return npm.pin_npm(f"{source.name}@{source.version}", store, environment)
            case "hf":
                from pih.build import hf

                return hf.pin_hf(source.name, source.version, source.member, store, environment)
        raise UsageError(f"no registry serves a source of kind {source.kind!r}", where=source.text)

    return pin
