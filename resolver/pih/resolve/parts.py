"""What a deployment is made of, whatever its sizes: plugins with their reasons, and the artifacts that they need."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from pih.catalog import Catalog, Manifest
from pih.lock import Artifact, Lock
from pih.pins import Pins
from pih.profile import Profile
from pih.resolve import artifacts, explain, outside
from pih.resolve.model import ModelFile
from pih.resolve.outcome import Solution


@attrs.frozen
class Parts:
    """explained: each plugin with its chains of reasons. carried: by plugin, the archives of those from outside.

    artifacts: every one, these archives too. pins: the release's, and those that plugins from outside bring.
    """

    solution: Solution
    explained: tuple[tuple[Manifest, tuple[str, ...]], ...]
    carried: Mapping[str, Artifact]
    artifacts: tuple[Artifact, ...]
    pins: Pins


def parts_of(
    solution: Solution,
    profile: Profile,
    catalog: Catalog,
    pins: Pins,
    previous: Lock | None,
    files: Mapping[str, ModelFile],
) -> Parts:
    """The artifacts of the chosen plugins and the model's files; raises ResolutionError where one is not pinned."""
    root = catalog.root
    explained = tuple((plugin, explain.reasons(plugin, solution.served)) for plugin in solution.plugins)
    known = outside.pinned(pins, solution.plugins, catalog)
    carried = {
        plugin.id: artifact
        for plugin, reasons in explained
        if (artifact := outside.artifact_of(plugin, catalog, reasons)) is not None
    }
    wanted = (
        *artifacts.wanted_by_target(profile.reason(root, "target", "os")),
        *artifacts.wanted_by_plugins(explained),
        *artifacts.wanted_by_lowering(profile.reason(root, "model", "weights")),
    )
    chosen = artifacts.choose(wanted, files.values(), known, previous.artifacts if previous else ())
    return Parts(solution, explained, carried, (*chosen, *carried.values()), known)
