"""The catalog of one deployment: the source tree's plugins, and those from outside that are trusted.

A plugin that is not trusted, or not made for this PIH, is no candidate; it is kept with its reason, so that a lock
that would need it says why, and `pih catalog list` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from pih import catalog
from pih.catalog import Catalog
from pih.origin import Held, Refused
from pih.profile import Profile
from pih.toml_lines import line_of
from pih.trust import find, keyring
from pih.trust.find import Found
from pih.trust.keyring import Keyring
from pih.trust.settle import settled
from pih_runtime.errors import ResolutionError


@attrs.frozen
class Offers:
    """All that there is to choose from, before a lock has its word. own: the source tree's plugins."""

    own: Catalog
    found: tuple[Found | Refused, ...]
    keyring: Keyring

    def beside(self, held: Sequence[Held]) -> Catalog:
        """The catalog for a lock that has these plugins from outside, none where there is no lock."""
        return settled(self.own, self.found, held, self.keyring)


def load(root: Path, profile: Profile, environment: Mapping[str, str]) -> Offers:
    """What this profile can choose from; raises where a place that it names cannot be read."""
    ring = keyring.load(environment)
    return Offers(catalog.load(root), tuple(find.found(profile, ring)), ring)


def here(root: Path, environment: Mapping[str, str]) -> Offers:
    """The same without a profile: what every one of this host can have."""
    ring = keyring.load(environment)
    return Offers(catalog.load(root), tuple(find.everywhere(ring)), ring)


def check_named(profile: Profile, known: Catalog) -> None:
    """Raises ResolutionError where nothing may be chosen of what the profile names: it must not be passed over."""
    taken = {origin.entry for origin in known.origins.values()}
    first = min((item for item in known.refused if item.entry not in {-1, *taken}), key=lambda i: i.entry, default=None)
    if first is not None:
        raise ResolutionError(
            f"{first.id} {first.version} ({first.source}) is refused: {first.why}{first.table}",
            where=f"{profile.path}:{line_of(profile.lines, ('plugins', first.entry))}",
            fix=first.fix,
        )
